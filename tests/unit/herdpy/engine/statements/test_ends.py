"""A cancel, KILL, a time-out and Ctrl-C end a statement soon, whatever it is just doing.

Each is asked for in the midst of one phase. Counted are the calls, Python's own included, from then
to the statement's end, never time: 100,000 calls take some 10 ms.
"""

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import herdpy
from herdpy.driver.connection import Connection

CALLS_MAX = 100_000
_NUMBERS = ", ".join(f"id + {n} AS c{n}" for n in range(1_000))
_VECTOR = f"SELECT {_NUMBERS} FROM t ORDER BY upper(s)"
_INSERT = f"INSERT INTO t VALUES {', '.join(f'({n}, concat({n}))' for n in range(300))}"
_ROWS = f"INSERT INTO t VALUES {', '.join(f'({n}, NULL)' for n in range(10_000))}"
_LIST = f"SELECT id FROM t WHERE id IN ({', '.join(map(str, range(20_000)))})"
_BIG, _CALLS_OF_ROWS_MAX = 6_000, 40_000
"""Rows of a table, and what may be called for some thousand of them."""
_NEW = "SELECT id + 100000, s FROM big"
_MANY = [(n, f"b{n}") for n in range(_BIG)]
_BLANKS = itertools.count()
PHASES = {
    "tokens": ("/sql/reading/tokens.py", _LIST),
    "syntax tree": ("/sql/reading/read_expression.py", _LIST),
    "names and types": ("/sql/bind_expression.py", _VECTOR),
    "binding rows": ("/sql/bind.py", _ROWS),
    "rights": ("/sql/tree.py", _VECTOR),
    "plan": ("/sql/planner.py", _ROWS),
    "text for DuckDB": ("/sql/duckdb_text.py", _VECTOR),
    "text of an INSERT": ("/sql/duckdb_text.py", _INSERT),
    "functions of rows": ("/exec/row/expressions.py", _ROWS),
}
STATEMENTS: dict[str, str] = {
    "rows of a table": "SELECT id, s FROM few WHERE s <> 'b'",
    "rows of a key": "SELECT s FROM few WHERE id >= 0 ORDER BY id DESC",
    "rows of DuckDB": "SELECT id, s, id + 1 AS a, 1 AS b, s || 'a' AS c FROM big ORDER BY s, id",
    "INSERT of rows of DuckDB": f"INSERT INTO big {_NEW} WHERE id % 7 <> 8",
    "INSERT of rows of a table": f"INSERT INTO few {_NEW.replace('big', 'few')}",
    "INSERT of rows that may be there": "INSERT INTO few SELECT id + 3000, s FROM few"
                                        " ON CONFLICT DO NOTHING",
    "new values": "UPDATE big SET s = 'b'",
    "new keys": "UPDATE big SET id = id + 100000",
    "deleted rows": "DELETE FROM big WHERE id > 0",
    "parameters of an INSERT": "INSERT INTO many VALUES (?, ?)",
    "parameters of computed rows": "INSERT INTO many VALUES (? + 1, ?)",
    "parameters of an UPDATE": "UPDATE few SET s = ? WHERE id = ?",
}  # fmt: skip


def _cancel(connection: Connection) -> None:
    connection.cancel()


def _kill_statement(connection: Connection) -> None:
    session: Any = connection.live_session()
    session.interrupt.cancel("KILL STATEMENT")


def _time_out(connection: Connection) -> None:
    session: Any = connection.live_session()
    session.interrupt.deadline = 0.0


def _interrupt(connection: Connection) -> None:
    raise KeyboardInterrupt


WAYS: dict[str, Callable[[Connection], None]] = {
    "cancel": _cancel, "KILL": _kill_statement, "time-out": _time_out, "Ctrl-C": _interrupt,
}  # fmt: skip


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    connection = herdpy.connect(":memory:")
    connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
    connection.execute("INSERT INTO t VALUES (1000000, 'a')")
    connection.commit()
    connection.execute("SET statement_timeout = '60s'")
    connection.execute(_VECTOR).fetchall()  # so that the thread that stops DuckDB is there
    connection.execute("RESET statement_timeout")
    for name in ("few", "big", "many"):
        connection.execute(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, s TEXT)")
    for name in ("few", "big"):
        connection.executemany(f"INSERT INTO {name} VALUES (?, ?)", _MANY)
    connection.commit()
    yield connection
    connection.close()


def run(
    connection: Connection, text: str, part: str, at: int, way: Callable[[Connection], None] | None
) -> tuple[str, int, int]:
    """Run a statement, `way` at that call in files with `part` in their paths.

    Returns how it ended, the calls in those files, and all calls since `way`.
    """
    seen = after = 0
    is_asked = False

    def profile(frame: Any, event: str, argument: object) -> None:
        nonlocal seen, after, is_asked
        if event not in ("call", "c_call"):
            return
        if is_asked:
            after += 1
        elif event == "call" and part in frame.f_code.co_filename:
            seen += 1
            if seen == at and way is not None:
                is_asked = True
                way(connection)

    ended = "rows"
    sys.setprofile(profile)
    try:
        connection.execute(f"{text}{' ' * next(_BLANKS)}")  # another text: no plan of it is kept
    except herdpy.Error as error:
        ended = error.sqlstate
    except KeyboardInterrupt:
        ended = "Ctrl-C"
    finally:
        sys.setprofile(None)
    connection.rollback()
    return ended, seen, after


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("phase", PHASES)
def test_the_end_comes_soon(connection: Connection, phase: str, way: str) -> None:
    part, text = PHASES[phase]
    run(connection, text, part, 0, None)  # what is imported and kept is there from here on
    ended, total, _ = run(connection, text, part, 0, None)
    assert ended == "rows"
    assert total > 300, "the statement is too small for this phase"
    for share in (0.1, 0.6):
        ended, _, after = run(connection, text, part, int(total * share), WAYS[way])
        assert ended == ("Ctrl-C" if way == "Ctrl-C" else "57014")
        assert after <= CALLS_MAX
    assert connection.execute("SELECT 1").fetchall() == [(1,)]
    connection.rollback()


def run_whole(
    connection: Connection, name: str, at: int, way: Callable[[Connection], None] | None
) -> tuple[str, int, int]:
    """Run a statement of STATEMENTS to its last row, `way` at that call of any function.

    Returns how it ended, all calls up to the moment of decision, and the calls since `way`.
    """
    count = decided = 0
    is_asked = False

    def profile(frame: Any, event: str, argument: object) -> None:
        nonlocal count, decided, is_asked
        if event not in ("call", "c_call"):
            return
        count += 1
        if event == "call" and frame.f_code.co_name == "submit" and not decided:
            decided = count
        if count == at and way is not None:
            is_asked = True
            way(connection)

    text = f"{STATEMENTS[name]}{' ' * next(_BLANKS)}"
    ended = "rows"
    connection.execute("SELECT 1")  # the transaction is there
    sys.setprofile(profile)
    try:
        if "?" in text:
            connection.executemany(text, _MANY if "INTO" in text else [x[::-1] for x in _MANY])
        else:
            cursor = connection.execute(text)
            if cursor.description is not None:
                cursor.fetchall()
    except herdpy.Error as error:
        ended = error.sqlstate
    except KeyboardInterrupt:
        ended = "Ctrl-C"
    finally:
        sys.setprofile(None)
    connection.rollback()
    assert bool(is_asked) == bool(way)
    return ended, decided or count, count - at


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", STATEMENTS)
def test_the_end_comes_soon_among_many_rows(connection: Connection, name: str, way: str) -> None:
    """Up to the moment at which the log takes a change: behind it, it has happened."""
    run_whole(connection, name, 0, None)  # what is imported and kept is there from here on
    ended, total, _ = run_whole(connection, name, 0, None)
    assert ended == "rows"
    for share in (0.15, 0.5, 0.85):
        ended, _, after = run_whole(connection, name, int(total * share), WAYS[way])
        assert ended == ("Ctrl-C" if way == "Ctrl-C" else "57014"), share
        assert after <= _CALLS_OF_ROWS_MAX, share
    assert connection.execute("SELECT 1").fetchall() == [(1,)]
    connection.rollback()
