"""The demo on a part of the flights: it loads, asks, kills, proves, and touches nothing foreign."""

import io
from pathlib import Path

import pytest
from rich.console import Console

import herdpy
from herdpy.cli.demo import writer
from herdpy.cli.demo.queries import QUESTIONS
from herdpy.cli.demo.tables import TABLES, DemoTable, read_text, row_batches
from herdpy.cli.demo.tour import Tour, run_demo

pytestmark = pytest.mark.integration


def test_a_small_demo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")  # pytest-xdist sets another
    directory = tmp_path / "demo"
    assert run_demo(str(directory), flights_max=20_000, commits_min=40) == 0
    shown = capsys.readouterr().out
    for number, question in enumerate(QUESTIONS, 1):
        assert f"{number}. {question.title}" in shown
    assert "Point lookup on flights by key" in shown
    assert "Scan of flights" in shown
    assert "SIGKILL (exit code -9)" in shown
    assert " 0 lost, 0 half" in shown
    assert "20,000 of 20,000 flights" in shown
    assert "MANIFEST" in shown
    assert max(map(len, shown.splitlines())) <= 100
    modes = {path.name: path.stat().st_mode & 0o077 for path in directory.rglob("*")}
    assert not {name for name, others in modes.items() if others}, "it warns of its own files"
    with herdpy.connect(str(directory)) as connection:
        count = connection.execute("SELECT count(*) FROM airports").fetchone()
        assert count == (1_458,)


def test_a_lost_commit_would_be_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "demo"
    with herdpy.connect(str(directory), autocommit=True) as connection:
        connection.execute(writer.CREATE_TEXT)
        connection.execute("CREATE TABLE flights (x INTEGER)")
        for seat in range(1, writer.ROWS_PER_COMMIT + 1):
            connection.execute("INSERT INTO boarding VALUES (1, 1, ?, 'x')", (seat,))
        connection.execute("INSERT INTO boarding VALUES (1, 2, 1, 'half of it')")
    tour = Tour(Console(width=100), directory, flights_max=0, commits_min=1)
    for acknowledged in ({1: [1, 2]}, {1: [1, 2, 3]}, {1: []}):
        assert not tour.prove(acknowledged)
    assert "half" in capsys.readouterr().out


def test_a_directory_of_others_is_not_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    assert run_demo(str(tmp_path)) == 1
    assert "nothing in it was touched" in capsys.readouterr().out
    assert (tmp_path / "mine.txt").read_text() == "keep"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_missing_values_are_null(table: DemoTable) -> None:
    """What the package's own reader, pandas, takes for missing is NULL, and nothing else is."""
    import pandas

    text = read_text(table)
    frame = pandas.read_csv(io.StringIO(text))
    rows = [row for batch in row_batches(table, text, None) for row in batch]
    assert len(rows) == len(frame)
    for ordinal, (name, _) in enumerate(table.columns):
        assert sum(row[ordinal] is None for row in rows) == frame[name].isna().sum(), name
