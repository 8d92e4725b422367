"""Salvage of stages that the log publishes, and of rows that their damaged pages may change."""

from collections.abc import Iterator

import pytest

from herdpy.config import Config
from herdpy.engine.maintenance.salvage import Salvage
from herdpy.engine.session.session import Session
from herdpy.engine.writes import row_writes, spilled_writes
from herdpy.storage import arrow_pages, page
from herdpy.storage.manifest import Manifest
from herdpy.storage.segment import segment_name
from tests.fixtures.engines import Engine, engine, rows, run

LITTLE = Config(transaction_memory_bytes=20_000, log_file_bytes_first=64 * 1024)
ROWS = 400
PAGE_ROWS = 16
Content = dict[int, tuple[int, ...]]


@pytest.fixture
def db(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """A database of small pages; transactions spill early."""
    monkeypatch.setattr(row_writes, "_LOOK_ROWS", 5)
    monkeypatch.setattr(spilled_writes, "_PIECE_ROWS", 50)
    for module in (page, arrow_pages):
        monkeypatch.setattr(module, "page_rows_max", PAGE_ROWS)
    with engine(config=LITTLE) as made:
        session = made.session()
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        run(session, "CREATE TABLE source (id BIGINT PRIMARY KEY, v BIGINT)")
        for name, first in (("t", 0), ("source", ROWS // 2)):
            pairs = [(number, first) for number in range(first, first + ROWS)]
            session.execute_many(f"INSERT INTO {name} VALUES (?, ?)", pairs)
        session.commit()
        made.database.run_checkpoint()
        yield made


def damaged_page(db: Engine, *, of_stage: bool) -> None:
    """Flip a bit in the second page of table t, or of the stage of the transaction that is open."""
    listed = Manifest.read(db.disk, "default/MANIFEST")
    number = max(listed.tables) if of_stage else min(listed.tables)
    ref = listed.tables[number].pages[1]
    file = db.disk.open(f"default/segments/{segment_name(ref.segment)}")
    place = ref.offset + ref.length // 2
    file.write_at(place, bytes([file.read_at(place, 1)[0] ^ 1]))
    file.close()


def contents(session: Session) -> Content:
    return {row[0]: row for row in rows(session, "SELECT id, v FROM t")}


def salvaged(db: Engine) -> tuple[Content, int]:
    """Return the rows of t that salvage saves, and how many it says are missing."""
    found = Salvage.begin(db.disk, "here")
    try:
        text = b"".join(found.pieces()).decode()
        assert found.damages
    finally:
        found.close()
    with engine() as other:
        session = other.session(autocommit=True)
        lines = [line for line in text.splitlines() if not line.startswith("--")]
        for statement in "\n".join(lines).split(";\n"):
            if statement.strip():
                session.execute(statement, ())
        return contents(session), found.lost["t"]


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM t WHERE id % 2 = 0",
        "UPDATE t SET v = -1",
        "UPDATE t SET id = id + 1",
        "INSERT INTO t SELECT id, v FROM source ON CONFLICT DO NOTHING",
    ],
)
def test_no_row_is_saved_that_a_damaged_page_of_a_stage_changes(db: Engine, text: str) -> None:
    session = db.session()
    run(session, text)
    db.database.run_checkpoint()
    session.commit()
    now = contents(db.session(autocommit=True))
    damaged_page(db, of_stage=True)
    saved, lost = salvaged(db)
    assert saved.items() <= now.items()
    assert 0 < len(now) - len(saved) <= lost


def test_no_row_is_saved_that_counts_only_where_a_damaged_page_has_none(db: Engine) -> None:
    session = db.session()
    run(session, "INSERT INTO t SELECT id - 200, v FROM source ON CONFLICT DO NOTHING")
    db.database.run_checkpoint()
    session.commit()
    now = contents(db.session(autocommit=True))
    damaged_page(db, of_stage=False)
    saved, lost = salvaged(db)
    assert saved.items() <= now.items()
    assert 0 < len(now) - len(saved) <= lost


def test_a_stage_that_is_given_up_changes_nothing(db: Engine) -> None:
    session = db.session()
    run(session, "DELETE FROM t WHERE id % 2 = 0")
    db.database.run_checkpoint()
    session.rollback()
    db.database.tablespace.sync_log()
    damaged_page(db, of_stage=True)
    saved, _ = salvaged(db)
    assert saved == contents(db.session(autocommit=True))
