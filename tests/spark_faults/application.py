"""`python -m tests.spark_faults.application …`: a Spark program that does what it is told.

Told and answered in lines of JSON on stdin and stdout. It is killed now and then: everything that
has to be known of it is on the server, or in files of the round's folder.
"""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import herdpy
import herdpy.spark
from tests.spark_faults.cluster import wait_until

EXECUTORS = 2
BATCH_ROWS = 2_000


def passing(folder: str, shift: int, stalled: int, after: int) -> Callable[..., Any]:
    """Return a step that passes rows on with ids greater by `shift`, and says how far it is.

    A file of the folder grows by one byte for each batch. The part `stalled` stops behind `after`
    batches in its first attempt, until there is a file "go"; its second attempt tells that it is
    there, and stops if there is a file "hold", until there is "go on".
    """

    def step(batches: Any) -> Any:
        import os
        import time

        import pyarrow as pa
        import pyarrow.compute as pc
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        part, attempt = context.partitionId(), context.attemptNumber()

        def wait_for(name: str) -> None:
            while not os.path.exists(f"{folder}/{name}"):
                time.sleep(0.005)

        for number, batch in enumerate(batches):
            with open(f"{folder}/batches", "ab", buffering=0) as progress:
                progress.write(b".")
            if part == stalled and number == after:
                open(f"{folder}/attempt {attempt}", "w").close()
                if attempt == 0:
                    wait_for("go")
                elif os.path.exists(f"{folder}/hold"):
                    wait_for("go on")
            ids = pc.add(batch.column("id"), pa.scalar(shift, pa.int64()))
            yield pa.record_batch({"id": ids, "v": batch.column("v")})
        open(f"{folder}/end of attempt {attempt} of {part}", "w").close()

    return step


class Application:
    """See the module."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._spark: SparkSession = herdpy.spark.session(
            master=f"local-cluster[{EXECUTORS},1,1024]",
            spark_ui_enabled="false",
            spark_ui_showConsoleProgress="false",
            spark_driver_host="127.0.0.1",
            spark_sql_shuffle_partitions="2",
            spark_sql_execution_arrow_maxRecordsPerBatch=str(BATCH_ROWS),
            spark_deploy_maxExecutorRetries="-1",  # executors die often here
            spark_speculation="true",
            spark_speculation_interval="50ms",
            spark_speculation_quantile="0.5",
            spark_speculation_multiplier="2",
            spark_speculation_minTaskRuntime="500ms",
        )
        self._spark.sparkContext.setLogLevel("WARN")
        context: Any = self._spark.sparkContext
        self._context = context._jsc.sc()  # Scala's, as Python's does not tell of executors
        self.jvm: int = context._gateway.proc.pid
        self.await_executors()

    def await_executors(self, count: int = EXECUTORS) -> None:
        """Wait until Spark can use so many."""
        # The driver is one of them.
        wait_until(lambda: self._context.getExecutorMemoryStatus().size() == count + 1, "executors")

    def run(self, job: dict[str, Any]) -> list[Any]:
        """Do one thing; return numbers."""
        if job["do"] == "release":
            return [herdpy.spark.release(self._url)]
        if job["do"] == "settle":
            self.await_executors()
            return []
        frame = self._source(job)
        if job["do"] == "read":
            return list(frame.selectExpr("count(*)", "sum(id)", "sum(v)").collect()[0])
        writer = frame.write.format("herdpy").option("url", self._url).option("table", "target")
        writer.options(**job["options"]).mode(job["mode"]).save()
        return []

    def _source(self, job: dict[str, Any]) -> DataFrame:
        reader = self._spark.read.format("herdpy").option("url", self._url)
        options = {"numPartitions": job["parts"], "fetchBatchRows": BATCH_ROWS}
        frame = reader.options(table="source", leaseSeconds=job["lease_s"], **options).load()
        step = passing(job["folder"], job["shift"], job["stalled"], job["after"])
        return frame.mapInArrow(step, "id BIGINT, v BIGINT")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    application = Application(parser.parse_args().url)
    print(json.dumps({"jvm": application.jvm}), flush=True)
    for line in sys.stdin:
        try:
            answer = {"found": application.run(json.loads(line))}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
