"""Every table that is looked up by a kind has all kinds that can come there."""

from collections.abc import Collection

import duckdb
import pytest

from herdpy.driver import types as driver_types
from herdpy.exec import coerce
from herdpy.exec.vector import arrow_columns, arrow_rows
from herdpy.model import python_values
from herdpy.model.types import Kind, SqlType, decimal_type
from herdpy.proto import herdpy_pb2
from herdpy.sql import bind_function, conversions, duckdb_text, text
from herdpy.sql.tree import Literal
from herdpy.storage import arrow, column, verify

EXPRESSIONS = set(Kind) - {Kind.UNKNOWN}
COLUMNS = EXPRESSIONS - {Kind.INTERVAL}

TABLES: dict[str, tuple[Collection[Kind], set[Kind]]] = {
    "names of types": (bind_function._TYPE_NAMES, set(Kind)),
    "DuckDB's types": (duckdb_text._TYPE_NAMES, EXPRESSIONS - {Kind.DECIMAL}),
    "casts from text": (duckdb_text._FROM_TEXT, EXPRESSIONS - {Kind.DECIMAL, Kind.TEXT}),
    "Arrow's types of results": (arrow_rows._ARROW_TYPES, set(Kind) - {Kind.DECIMAL}),
    "rows on the wire": (python_values.KIND_CLASSES, EXPRESSIONS),
    "classes of Python": (
        set(python_values.PYTHON_KINDS.values()),
        EXPRESSIONS - {Kind.SMALLINT, Kind.INTEGER, Kind.REAL, Kind.TIMESTAMPTZ},
    ),
    "parameters": ({kind for kind, _ in coerce._FROM_PYTHON}, EXPRESSIONS - {Kind.TEXT}),
    "fast columns of ingest": (arrow_columns._FAST, COLUMNS),
    "Arrow's types of pages": (arrow._TYPES, COLUMNS - {Kind.DECIMAL}),
    "layouts of pages": (column._LAYOUTS, COLUMNS - {Kind.DECIMAL}),
    "defaults": (verify._DEFAULTS, COLUMNS),
    "the driver's type objects": (
        {
            Kind[code]
            for item in vars(driver_types).values()
            if isinstance(item, driver_types.TypeObject)
            for code in item.codes
        },
        EXPRESSIONS - {Kind.BOOLEAN},
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_every_kind(name: str) -> None:
    found, wanted = TABLES[name]
    assert wanted <= set(found), wanted - set(found)


TEXTS: dict[Kind, str] = {
    Kind.BOOLEAN: "true", Kind.SMALLINT: "-7", Kind.INTEGER: "-7", Kind.BIGINT: "70000000000",
    Kind.REAL: "0.1", Kind.DOUBLE: "1.5", Kind.DECIMAL: "1.50", Kind.TEXT: "it's",
    Kind.BYTEA: "\\x00ff", Kind.DATE: "2020-02-29", Kind.TIMESTAMP: "2020-02-29 01:02:03.5",
    Kind.TIMESTAMPTZ: "2020-02-29 01:02:03.5+00", Kind.INTERVAL: "1 mon -2 days +03:04:05.6",
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(EXPRESSIONS, key=str))
def test_a_constant_of_every_kind_is_read_and_printed(kind: Kind) -> None:
    sql_type = decimal_type(10, 2) if kind is Kind.DECIMAL else SqlType(kind)
    value = conversions.read_text(TEXTS[kind], sql_type)
    assert TEXTS[kind][:7].replace("'", "''").lower() in text.literal_text(value, sql_type).lower()
    for constant in (value, None):
        printed = duckdb_text.literal_text(Literal(sql_type, constant))
        [(shown,)] = duckdb.execute(f"SELECT typeof({printed})").fetchall()
        assert shown == duckdb_text.type_text(sql_type)
    assert conversions.common_type(sql_type, sql_type) == sql_type
    assert conversions.is_comparable(sql_type, sql_type)


def test_grpc_numbers_the_kinds_alike() -> None:
    assert {kind.name: kind.value for kind in Kind}.items() <= dict(herdpy_pb2.Kind.items()).items()
