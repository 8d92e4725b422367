"""Spark over a herdpy server and back: which airline is late, as a new table.

make demo                                            # flights, into ./demo-data
herdpy serve ./demo-data
python examples/spark/pipeline.py herd://localhost:7000
"""

import sys

from pyspark.sql import functions as f

import herdpy
import herdpy.spark

url = sys.argv[1]
spark = herdpy.spark.session("late airlines", master="local[2]", spark_sql_shuffle_partitions=4)
spark.sparkContext.setLogLevel("ERROR")


def table(name, **options):
    return spark.read.format("herdpy").options(url=url, table=name, **options).load()


flights = table("flights", columns="carrier, arr_delay", where="arr_delay IS NOT NULL")
late = (
    flights.groupBy("carrier")
    .agg(f.count("*").alias("flights"), f.sum("arr_delay").alias("minutes"))
    .join(f.broadcast(table("airlines")), "carrier")
)
(
    late.write.format("herdpy")
    .options(url=url, table="late_airlines", createTable="true", keyColumns="carrier")
    .mode("overwrite")  # one transaction: readers see the old rows, or the new ones
    .save()
)
herdpy.spark.release(url)  # the snapshots that the DataFrames were read at
spark.stop()

with herdpy.connect(url, autocommit=True) as conn:
    query = "SELECT name, flights, minutes FROM late_airlines ORDER BY minutes DESC, name LIMIT 3"
    for row in conn.execute(query):
        print(*row, sep=" | ")
