"""Spark's data source "herdpy": tables of a herdpy server as DataFrames, read and written.

Spark finds `DefaultSource` by the name of this package, in every process that has it on its path:
`spark.read.format("herdpy")` needs no registration. It uses herdpy's public driver and nothing
else of herdpy. Objects of this package travel pickled between Spark's processes: the planner's,
which are not the driver program's, and the tasks'. docs/guides/spark.md.
"""

from pyspark_herdpy.source import DefaultSource

__all__ = ["DefaultSource"]
