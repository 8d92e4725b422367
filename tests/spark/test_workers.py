"""What tasks leave in Spark's Python workers."""

import gc

from pyspark.sql import SparkSession

from pyspark_herdpy.workers import settle


def test_a_worker_settles_once_and_no_other_process_does(spark: SparkSession) -> None:
    def frozen(_: int) -> tuple[int, int]:
        settle()
        first = gc.get_freeze_count()
        made = [[number] for number in range(10_000)]  # all of them seen by the collector
        settle()
        return first, gc.get_freeze_count() - first + len(made)

    ((first, more),) = spark.sparkContext.parallelize([0], 1).map(frozen).collect()
    assert first > 10_000
    assert more == 10_000  # a frozen one would be one more
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before
