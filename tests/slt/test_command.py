"""What the command says of a corpus, and its exit code."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console

from tests.slt import __main__ as command
from tests.slt.tally import Finding, Refusal, Tally


def _tally(passed: int, **wrong: int) -> Tally:
    tally = Tally(passed=passed, doubtful=wrong.get("doubtful", 0), typed=wrong.get("typed", 0))
    tally.refused.update({Refusal("0A000", "[no] such thing"): wrong.get("refused", 0)})
    for refusal in tally.refused:
        tally.examples[refusal] = "own.test:1: SELECT [1]"
    for counter, name in ((tally.different, "different"), (tally.internal, "internal")):
        for _ in range(wrong.get(name, 0)):
            tally.note(counter, Finding("own.test:9", f"[{name}]", "SELECT", "1", "2"))
    return tally


@pytest.mark.parametrize(
    ("tally", "strict", "dialect"),
    [
        (_tally(1_000), True, True),
        (_tally(997, refused=3), True, False),
        (_tally(996, refused=4), False, False),
        (_tally(996, refused=3, doubtful=1), False, False),
        (_tally(997, refused=2, typed=1), True, False),
        (_tally(996, refused=3, typed=1), False, False),
        (_tally(99_999, different=1), False, False),
        (_tally(99_999, internal=1), False, False),
        (_tally(0), False, False),
    ],
)
def test_the_bar(tally: Tally, strict: bool, dialect: bool) -> None:
    assert command.is_above_bar(tally, is_strict=True) == strict
    assert command.is_above_bar(tally, is_strict=False) == dialect


def test_what_is_shown_and_kept(in_directory: Path) -> None:
    tallies = {"index/in": _tally(10, refused=2), "select": _tally(20, different=1, internal=1)}
    tallies["select"].set_aside(Finding("own.test:7", "values, doubtful", "SELECT", "1", "2"))
    console = Console(width=160, record=True)
    assert command.show(console, tallies).run == 34
    text = console.export_text()
    for word in ("index/in", "34", "[no] such thing", "SELECT [1]", "[different]", "own.test:9"):
        assert word in text
    kept = (in_directory / "build" / "slt.txt").read_text()
    assert "2 0A000 [no] such thing" in kept
    assert kept.count("own.test:9") == 2
    assert kept.count("own.test:7: values, doubtful") == 1


def _command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["slt", *arguments])
    return command.main()


def test_without_a_corpus_the_suite_is_skipped_aloud(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _command(monkeypatch, "--strict") == 0
    assert "SKIPPED" in capsys.readouterr().out


def test_a_folder_without_files_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        _command(monkeypatch, "--strict", "--corpus", str(tmp_path))
    assert "no file *.test" in capsys.readouterr().err


def test_without_strict_the_dialect_is_needed(
    monkeypatch: pytest.MonkeyPatch, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _command(monkeypatch, "--corpus", str(corpus)) == 1
    assert "connect(dialect='sqlite')" in capsys.readouterr().out


def test_the_command_runs_what_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    in_directory: Path,
    corpus: Path,
) -> None:
    # Threads, since processes are not forked where there are threads.
    monkeypatch.setattr(command, "ProcessPoolExecutor", ThreadPoolExecutor)
    arguments = ("--strict", "--corpus", str(corpus.parent), "--sample", "90", "--jobs", "2")
    assert _command(monkeypatch, *arguments) == 0
    assert "94 records, files: 3, seed 1 as herdpy: 100.000% passed" in capsys.readouterr().out
    path = corpus / "select1.test"
    path.write_text(path.read_text().replace("----\n1", "----\n2"))
    assert _command(monkeypatch, *arguments, "--only", "sel") == 1
    told = capsys.readouterr().out
    assert "2 records, files: 1" in told
    assert "select1.test:4: values" in told
