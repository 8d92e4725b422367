"""Scripts and `.` commands: what the shell writes, and when it stops."""

import io
import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import herdpy
from herdpy.cli.prompt import is_ready, prompt_text
from herdpy.cli.shell import COMMANDS, Shell
from herdpy.driver.connection import Connection
from herdpy.driver.cursor import Cursor
from tests.style.test_layers import ROOT


class Desk:
    """A shell over a database in memory, and what it wrote."""

    def __init__(self, shell: Shell, out: io.StringIO, err: io.StringIO) -> None:
        self.shell = shell
        self._out = out
        self._err = err

    def run(self, text: str, where: str = "") -> tuple[bool, str, str]:
        """Return (went well, output, errors) of a script."""
        self._clear()
        is_well = self.shell.run_script(text, where)
        lines = [line.rstrip() for line in self._out.getvalue().splitlines()]
        return is_well, "\n".join(lines), self._err.getvalue()

    def type(self, text: str) -> tuple[str, str]:
        """Return (output, errors) of what is typed."""
        self._clear()
        self.shell.run_input(text)
        return self._out.getvalue(), self._err.getvalue()

    def _clear(self) -> None:
        for stream in (self._out, self._err):
            stream.seek(0)
            stream.truncate()


@pytest.fixture
def desk() -> Iterator[Desk]:
    out, err = io.StringIO(), io.StringIO()
    with herdpy.connect(autocommit=True) as connection:
        shell = Shell(
            connection, Console(file=out, width=80), Console(file=err, width=80), herdpy.connect
        )
        yield Desk(shell, out, err)
        shell.close()


def test_a_script(desk: Desk) -> None:
    text = """
        CREATE TABLE pet (id BIGINT PRIMARY KEY, name TEXT);
        INSERT INTO pet VALUES
            (1, 'a;b'), -- no end; here
            (2, NULL);
        UPDATE pet SET name = 'c' WHERE id = 9; SELECT * FROM pet ORDER BY id"""
    assert desk.run(text) == (
        True,
        "ok\n2 rows inserted\n0 rows updated\n"
        "╭────────┬──────╮\n"
        "│     id │ name │\n"
        "│ bigint │ text │\n"
        "├────────┼──────┤\n"
        "│      1 │ a;b  │\n"
        "│      2 │ NULL │\n"
        "╰────────┴──────╯\n"
        "2 rows",
        "",
    )


def test_the_first_error_ends_a_script(desk: Desk) -> None:
    is_well, out, err = desk.run("SELECT 1;\n\nSELECT\n  nix FROM\n pet;\nSELECT 2;", "a.sql")
    assert not is_well
    assert out.count("1 row") == 1
    assert err.splitlines()[0] == 'a.sql:3: error: table "pet" does not exist (42P01)'


def test_a_caret_stands_under_the_error(desk: Desk) -> None:
    _, _, err = desk.run("SELECT 'ü', 語;")
    message, line, caret, *_ = err.splitlines()
    assert "42703" in message
    assert line == "  SELECT 'ü', 語"
    assert caret == "              ^"


def test_a_hint_is_shown(desk: Desk) -> None:
    _, _, err = desk.run("CREATE TABLE pets (id BIGINT); SELECT * FROM pest")
    assert "hint: " in err
    assert "pets" in err.split("hint: ")[1]


def test_a_quote_without_end_is_one_error(desk: Desk) -> None:
    is_well, _, err = desk.run("SELECT 1;\nSELECT 'a;\n")
    assert not is_well
    assert err.startswith("error: syntax error")
    assert "42601" in err


def test_long_results_are_cut_and_counted(desk: Desk) -> None:
    values = ", ".join(f"({n})" for n in range(100))
    desk.run(f"CREATE TABLE n (n BIGINT PRIMARY KEY); INSERT INTO n VALUES {values};")
    _, out, _ = desk.run("SELECT n FROM n")
    assert out.endswith("40 rows shown, 60 more (.rows 100 shows them)")
    _, out, _ = desk.run(".rows all\nSELECT n FROM n")
    assert out.endswith("100 rows")
    _, out, _ = desk.run(".rows 40\nSELECT n FROM n LIMIT 40")
    assert out.endswith("\n40 rows")


def test_explain_is_plain(desk: Desk) -> None:
    desk.run("CREATE TABLE pet (id BIGINT PRIMARY KEY)")
    _, out, _ = desk.run("EXPLAIN SELECT id FROM pet WHERE id = 1")
    assert out.splitlines()[:2] == ["Row path", "  Output: id"]


ODD_ROWS = """
    CREATE TABLE odd (id INTEGER PRIMARY KEY, t TEXT, x DOUBLE PRECISION, d DECIMAL(5,2), b BYTEA,
        ok BOOLEAN, day DATE);
    INSERT INTO odd VALUES (1, 'say "hi", ü', 'NaN', 1.50, '\\x00ff', TRUE, DATE '2020-02-29'),
        (2, NULL, 0.1, NULL, NULL, NULL, NULL);"""


def test_csv(desk: Desk) -> None:
    desk.run(ODD_ROWS)
    _, out, _ = desk.run(".mode csv\nSELECT * FROM odd ORDER BY id; UPDATE odd SET t = '';")
    assert out.splitlines() == [
        "id,t,x,d,b,ok,day",
        '1,"say ""hi"", ü",nan,1.50,\\x00ff,true,2020-02-29',
        "2,,0.1,,,,",
    ]


def test_json(desk: Desk) -> None:
    desk.run(ODD_ROWS)
    _, out, _ = desk.run(".mode json\nSELECT * FROM odd ORDER BY id")
    first, second = json.loads(out)
    assert first == {
        "id": 1, "t": 'say "hi", ü', "x": "nan", "d": "1.50", "b": "\\x00ff", "ok": True,
        "day": "2020-02-29",
    }  # fmt: skip
    assert second["x"] == 0.1
    assert second["t"] is None
    _, out, _ = desk.run("SELECT * FROM odd WHERE id = 3")
    assert json.loads(out) == []


def test_lines(desk: Desk) -> None:
    _, out, _ = desk.run(".mode line\nSELECT 1 AS a, 'x' AS long")
    assert out == "   a = 1\nlong = x"


def test_tables_and_schema(desk: Desk) -> None:
    assert desk.run(".tables")[1] == "no tables yet"
    text = 'CREATE TABLE "Pet" (\n    id BIGINT,\n    PRIMARY KEY (id)\n);'
    desk.run(f"{text} CREATE TABLE heap (x TEXT);")
    assert "Pet" in desk.run(".tables")[1]
    assert desk.run(".schema Pet")[1] == text
    everything = desk.run(".schema")[1]
    other = herdpy.connect(autocommit=True)
    shell = Shell(other, desk.shell.console, desk.shell.errors, herdpy.connect)
    assert shell.run_script(everything)
    assert [(t.name, t.columns, t.key) for t in shell.tables()] == [
        (t.name, t.columns, t.key) for t in desk.shell.tables()
    ]
    shell.close()
    other.close()
    is_well, _, err = desk.run(".schema pett")
    assert not is_well
    assert "Did you mean Pet?" in err


def test_views_in_tables_and_schema(desk: Desk) -> None:
    text = 'CREATE VIEW "A view" (a, "B") AS\nSELECT 1, 2;'
    desk.run(f"CREATE TABLE t (x TEXT); {text}")
    assert "A view" in desk.run(".tables")[1]
    assert desk.run('.schema "A view"')[1] == text
    assert desk.run(".schema")[1] == f"{desk.run('.schema t')[1]}\n{text}"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (".tabels", "Did you mean .tables?"),
        (".nix", ".help"),
        (".mode", "usage: .mode box|csv|json|line"),
        (".mode xml", "found xml"),
        (".timer maybe", "found maybe"),
        (".rows 0", "found 0"),
    ],
)
def test_a_wrong_command_is_told(desk: Desk, line: str, word: str) -> None:
    is_well, _, err = desk.run(line)
    assert not is_well
    assert word in err


def test_help_names_every_command_and_quit_ends(desk: Desk) -> None:
    _, out, _ = desk.run(".help\n.quit\nSELECT 1;")
    for name in (".help", ".mode", ".quit", ".rows", ".schema", ".tables", ".timer"):
        assert f"  {name}" in out
    assert "1 row" not in out


def test_commands_between_statements(desk: Desk) -> None:
    desk.run("CREATE TABLE pet (id BIGINT PRIMARY KEY)")
    _, out, _ = desk.run("SELECT id FROM pet; .mode csv; SELECT id FROM pet; .quit; SELECT id;")
    assert out.endswith("0 rows\nid")


def test_words_of_other_shells(desk: Desk) -> None:
    desk.shell.run_input("help")
    assert not desk.shell.is_quitting
    desk.shell.run_input("exit;")
    assert desk.shell.is_quitting


def test_commands_of_psql(desk: Desk) -> None:
    desk.run("CREATE TABLE pet (id BIGINT PRIMARY KEY); CREATE TABLE toy (id BIGINT PRIMARY KEY)")
    out, _ = desk.type("\\dt")
    assert "toy" in out
    out, _ = desk.type("\\d pet;")
    assert "CREATE TABLE pet" in out
    assert "toy" not in out
    assert "there is no command \\copy" in desk.type("\\copy pet from x")[1]
    assert desk.type(" ") == ("", "")
    assert is_ready("\\d pet")


def test_timer(desk: Desk) -> None:
    _, out, _ = desk.run(".timer on\nSELECT 1;")
    assert out.splitlines()[-1].startswith("1 row · ")
    assert out.endswith(" ms")


@pytest.fixture
def press_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What presses Ctrl-C in another thread, and goes on when the main thread has heard it."""
    heard = threading.Event()
    cancel = Connection.cancel

    def cancelled(connection: Connection) -> None:
        cancel(connection)
        heard.set()

    def press() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert heard.wait(30)

    monkeypatch.setattr(Connection, "cancel", cancelled)
    return press


def test_ctrl_c_cancels_and_the_shell_goes_on(desk: Desk, press_ctrl_c: Callable[[], None]) -> None:
    """The signal comes while the shell waits for the rows of a statement."""
    connection = desk.shell.connection
    stream = desk.shell.console.file
    desk.shell.console.file = InterruptingFile(press_ctrl_c)
    is_well, _, err = desk.run(".mode csv\nSELECT 1;")
    assert not is_well
    assert err == "cancelled\n"
    desk.shell.console.file = stream
    assert not connection.in_transaction
    assert desk.run("SELECT 1;")[0]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_that_comes_too_late_says_what_has_happened(
    desk: Desk, press_ctrl_c: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert desk.run("CREATE TABLE t (id BIGINT PRIMARY KEY);")[0]
    execute = Cursor.execute

    def interrupted(cursor: Cursor, text: str) -> Any:
        found = execute(cursor, text)
        press_ctrl_c()
        return found

    monkeypatch.setattr(Cursor, "execute", interrupted)
    is_well, out, err = desk.run("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2);")
    monkeypatch.undo()
    assert (is_well, err) == (False, "it was done before it could be cancelled\n")
    assert out == "1 row inserted"
    assert desk.run(".mode csv\nSELECT id FROM t;")[1].splitlines() == ["id", "1"]


def test_ctrl_c_between_two_statements_ends_a_script(
    desk: Desk, press_ctrl_c: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    show = Shell.show_tables

    def interrupted(shell: Shell) -> None:
        show(shell)
        press_ctrl_c()

    command = COMMANDS[".tables"]._replace(run=interrupted)
    monkeypatch.setitem(COMMANDS, ".tables", command)
    is_well, out, err = desk.run(".tables\nCREATE TABLE t (id BIGINT PRIMARY KEY);")
    assert (is_well, out, err) == (False, "no tables yet", "cancelled\n")
    monkeypatch.undo()
    assert desk.run(".tables")[1] == "no tables yet"


def test_what_pg_dump_says_to_psql_alone_is_passed_over(desk: Desk) -> None:
    text = "--\n-- PostgreSQL\n\n\\restrict aB1\nSELECT 1 AS one;\n"
    text += "\\unrestrict aB1\nSELECT 2 AS two;\n"
    is_well, out, err = desk.run(f".mode csv\n{text}")
    assert (is_well, err) == (True, "")
    assert out.split() == ["one", "1", "two", "2"]
    assert not desk.run("\\connect x\n")[0]


class InterruptingFile(io.StringIO):
    """Presses Ctrl-C at the first thing that is written, the heading of the columns."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        super().__init__()
        self._interrupt: Callable[[], None] | None = interrupt

    def write(self, text: str) -> int:
        interrupt, self._interrupt = self._interrupt, None
        if interrupt is not None:
            interrupt()
        return super().write(text)


def test_the_session_in_the_examples_is_real() -> None:
    session = (ROOT / "examples" / "shell_session.txt").read_text()
    out = io.StringIO()
    with herdpy.connect(autocommit=True) as connection:
        console = Console(file=out, width=80)
        shell = Shell(connection, console, console, herdpy.connect)
        text = ""
        for line in session.splitlines():
            match = re.match(r"(?:herdpy\*?| +…)> (.*)", line)
            if match is None:
                continue
            prompt = prompt_text(shell)
            out.write(f"{'…> ':>{len(prompt)}}" if text else prompt)
            out.write(f"{match[1]}\n")
            text = f"{text}\n{match[1]}" if text else match[1]
            if is_ready(text):
                shell.run_input(text)
                text = ""
        shell.close()
    shown = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
    assert shown == session.rstrip("\n")


def test_another_tablespace(tmp_path: Path) -> None:
    out, err = io.StringIO(), io.StringIO()
    data = tmp_path / "data"

    def connect_to(tablespace: str) -> herdpy.Connection:
        return herdpy.connect(data, tablespace=tablespace, autocommit=True)

    with herdpy.connect(data, autocommit=True) as connection:
        shell = Shell(connection, Console(file=out), Console(file=err), connect_to, mode="csv")
        script = """
CREATE TABLESPACE sales; CREATE TABLESPACE "a b";
.tablespace sales
CREATE TABLE t (v TEXT);
.tablespace "a b"
INSERT INTO t VALUES (1);
"""
        assert not shell.run_script(script)
        assert 'table "t" does not exist' in err.getvalue()
        assert not shell.run_script(".tablespace nothing\n")
        assert "does not exist" in err.getvalue()
        assert shell.run_script(".tablespace sales\nBEGIN; INSERT INTO t VALUES ('x');")
        assert not shell.run_script(".tablespace default\n")
        assert "a transaction is open" in err.getvalue()
        assert shell.run_script("COMMIT;\n.tablespace default\n.tablespace sales\n")
        out.truncate(0)
        assert shell.run_script("SELECT v FROM t;")
        assert "x" in out.getvalue()
        assert connection.execute("SELECT count(*) FROM sysclients").fetchall() == [(2,)]
        shell.close()
        assert connection.execute("SELECT count(*) FROM sysclients").fetchall() == [(1,)]
