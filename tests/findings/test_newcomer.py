"""Findings of a newcomer: what programs for sqlite3 and psycopg do, and CSV of the shell."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import herdpy

# --- attributes of other drivers ------------------------------------------------------------------


def refusal(owner: Any, name: str) -> str:
    """Return what setting an attribute is answered with; "" when nothing is said."""
    try:
        setattr(owner, name, None)
    except AttributeError as error:
        return str(error)
    return ""


@pytest.mark.finding("N7")
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("row_factory", "fetch_arrow_table"),
        ("isolation_level", "autocommit"),
        ("text_factory", "TEXT"),
        ("total_changes", "rowcount"),
        ("autocomit", "autocommit"),
        ("something", "something"),
    ],
)
def test_an_attribute_that_has_no_effect_is_refused(name: str, hint: str) -> None:
    with herdpy.connect() as conn:
        found = refusal(conn, name)
        assert name in found
        assert hint in found
        assert not hasattr(conn, name)
        conn.autocommit = True  # its own goes on
        assert conn.autocommit


def test_cursors_refuse_attributes() -> None:
    with herdpy.connect() as conn:
        cursor = conn.cursor()
        cursor.arraysize = 7
        assert "cursor.description" in refusal(cursor, "row_factory")
        assert "something" in refusal(cursor, "something")


@pytest.mark.finding("N7")
def test_pools_refuse_attributes() -> None:
    pool = herdpy.Pool(":memory:")
    assert "connections_max" in refusal(pool, "connections_max")
    pool.close()


# --- close ----------------------------------------------------------------------------------------


@pytest.mark.finding("N8")
def test_close_may_be_called_again() -> None:
    conn = herdpy.connect()
    conn.close()
    found = ""
    try:
        conn.close()
    except herdpy.Error as error:
        found = str(error)
    assert found == ""
    with pytest.raises(herdpy.InterfaceError):
        conn.execute("SELECT 1")
