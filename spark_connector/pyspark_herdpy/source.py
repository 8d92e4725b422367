"""DefaultSource: what Spark asks the format "herdpy" for."""

import uuid
from collections.abc import Mapping
from contextlib import closing

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_herdpy.catalog import defaults_of, result_columns
from pyspark_herdpy.defaults import with_default
from pyspark_herdpy.options import read_options, write_options, wrong

RELEASED = "released"
"""Of option("release", "true"): the column, and its metadata, which says how many there were."""


class DefaultSource(DataSource):
    """Tables and queries of a herdpy server; found by Spark through the package's name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)  # type: ignore[arg-type]
        self._frame = uuid.uuid4().hex  # one load(): Spark pickles this object for all its plans

    @classmethod
    def name(cls) -> str:
        return "herdpy"

    def schema(self) -> StructType:
        """Return columns and types as the catalog has them."""
        options = read_options(self.options)
        if options.releases:
            from pyspark_herdpy.leases import release

            count = {RELEASED: release(options)}
            return StructType([StructField(RELEASED, LongType(), metadata=count)])
        with closing(options.connect()) as connection:
            columns = result_columns(connection, options)
            defaults = {}
            if options.table is not None and options.snapshot is None:  # which is not written to
                defaults = defaults_of(connection, options.table)
        fields = [with_default(StructField(*item), defaults.get(item[0])) for item in columns]
        schema = StructType(fields)
        if options.pushdown is None:
            return schema
        from pyspark_herdpy.pushing import with_marker

        return with_marker(schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        if options.releases:
            raise wrong('option "release" ends snapshots when it is loaded, and has no rows')
        if options.pushdown is None:
            from pyspark_herdpy.reading import HerdReader

            return HerdReader(options, schema, self._frame)
        # Another class: Spark refuses all reads of one that takes filters, but by its setting.
        from pyspark_herdpy.pushing import PushReader

        return PushReader(options, schema, self._frame)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_herdpy.writing import HerdWriter

        return HerdWriter(write_options(self.options), schema, overwrite=overwrite)
