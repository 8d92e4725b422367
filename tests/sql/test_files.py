"""Every *.test file, three ways: in autocommit, in one open transaction, after checkpoints.

The expected results of the files come from PostgreSQL 15; see each file's head.
"""

from pathlib import Path

import pytest

import herdpy
from herdpy.driver.connection import Connection
from tests.sql.runner import Block, difference, read_blocks

FILES = sorted(Path(__file__).parent.glob("*.test"))
WAYS = ("autocommit", "transaction", "checkpoint")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return request.param


def run_block(connection: Connection, block: Block) -> str | None:
    """Return what is wrong with what a block gives, or None."""
    cursor = connection.cursor()
    try:
        cursor.execute(block.text)
        description = cursor.description or ()
        rows = cursor.fetchall() if description else []
    except herdpy.Error as error:
        if error.sqlstate == block.sqlstate:
            return None
        return f"expected {block.sqlstate or 'no error'}, found {error.sqlstate}: {error}"
    finally:
        cursor.close()
    if block.sqlstate is not None:
        return f"expected error {block.sqlstate}, found {rows[:3]}"
    return None if block.rows is None else difference(rows, block, description)


def _is_query(block: Block) -> bool:
    return block.text.split(None, 1)[0].upper() in ("SELECT", "WITH", "VALUES", "TABLE", "(")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file(target: str, path: Path, way: str) -> None:
    connection = herdpy.connect(target, autocommit=way != "transaction")
    failures: list[str] = []
    try:
        has_changed = False
        for block in read_blocks(path):
            if way == "checkpoint" and has_changed and _is_query(block):
                connection.checkpoint()
                has_changed = False
            wrong = run_block(connection, block)
            if wrong is not None:
                failures.append(f"{path.name}:{block.line}: {block.text}\n{wrong}")
            has_changed = has_changed or not _is_query(block)
    finally:
        connection.close()
    assert not failures, "\n\n".join(failures)
