"""What the doctor advises is done here, as it says, and helps."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import herdpy
from herdpy.cli.app import app
from herdpy.engine.maintenance.directory import FORMAT_HINT, INTERRUPTED_RESTORE_HINT
from herdpy.engine.maintenance.leftovers import MISFIT_HINT
from herdpy.errors import damaged

ROWS = 9000
READ_HINT = str(damaged("").hint)


def herdpy_command(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def content(path: Path) -> list[tuple[object, ...]]:
    with herdpy.connect(str(path)) as connection:
        return connection.execute("SELECT count(*), sum(v) FROM t").fetchall()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with pages of two tables and a log behind them, beside its backup and pieces."""
    folder = tmp_path_factory.mktemp("advice")
    with herdpy.connect(str(folder / "db"), autocommit=True) as connection:
        for name in ("t", "whole"):
            connection.execute(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, v BIGINT)")
            values = [(number, number * 7) for number in range(ROWS)]
            connection.executemany(f"INSERT INTO {name} VALUES (?, ?)", values)
        (folder / "older").write_bytes((folder / "db/default/MANIFEST").read_bytes())
        connection.checkpoint()
        connection.backup(folder / "a.backup")
    with herdpy.connect(str(folder / "db"), autocommit=True) as connection:
        connection.execute("INSERT INTO t VALUES (-1, 0)")
    return folder


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "copy"))


def advised(path: Path) -> list[str]:
    """Return the doctor's advice, after seeing that it ends with 1 and says what is wrong."""
    said = herdpy_command("doctor", path)
    assert said.exit_code == 1, said.output
    assert "damage: " in said.output
    return re.findall(r"^advice: (.*)$", said.output, re.MULTILINE)


def do_backticks(text: str, copy: Path) -> None:
    """Run the commands that an advice names, with the operands that it leaves to the reader."""
    commands = re.findall(r"`herdpy ([^`]*)`", text)
    assert commands
    operands: dict[str, Callable[[], None]] = {
        "restore": lambda: restored(copy),
        "dump --salvage": lambda: salvaged(copy),
    }
    for command in commands:
        operands[command]()


def restored(copy: Path) -> None:
    said = herdpy_command("restore", copy / "a.backup", copy / "new")
    assert said.exit_code == 0, said.output
    assert content(copy / "new") == [(ROWS, sum(range(ROWS)) * 7)]


def salvaged(copy: Path) -> None:
    """Save what is whole, load it, and find it there as it was counted."""
    said = herdpy_command("dump", "--salvage", copy / "db", copy / "a.sql")
    assert said.exit_code == 1, said.output
    assert "damage: " in said.output
    counts = dict(re.findall(r"^(\w+): ([\d,]+) rows saved", said.output, re.MULTILINE))
    assert herdpy_command("shell", copy / "saved", "-f", copy / "a.sql").exit_code == 0
    with herdpy.connect(str(copy / "saved")) as connection:
        for name, count in counts.items():
            found = connection.execute(f"SELECT count(*) FROM {name}").fetchall()
            assert found == [(int(count.replace(",", "")),)]


def test_a_damaged_page(copy: Path) -> None:
    segment = min((copy / "db/default/segments").iterdir())
    data = bytearray(segment.read_bytes())
    data[1000] ^= 1
    segment.write_bytes(data)
    (advice,) = advised(copy / "db")
    assert advice == READ_HINT
    do_backticks(advice, copy)
    with herdpy.connect(str(copy / "saved")) as connection:
        found = connection.execute("SELECT count(*), sum(v) FROM whole").fetchall()
        assert found == [(ROWS, sum(range(ROWS)) * 7)]
        (left,) = connection.execute("SELECT count(*) FROM t").fetchall()
        assert 0 < left[0] < ROWS


def test_a_lost_log(copy: Path) -> None:
    for log in (copy / "db/default/log").iterdir():
        log.unlink()
    (advice,) = advised(copy / "db")
    assert advice == READ_HINT
    do_backticks(advice, copy)
    assert content(copy / "saved") == [(ROWS, sum(range(ROWS)) * 7)]


def test_an_older_manifest(copy: Path) -> None:
    manifest = copy / "db/default/MANIFEST"
    newest = manifest.read_bytes()
    shutil.copyfile(copy / "older", manifest)
    (advice,) = advised(copy / "db")
    assert advice == MISFIT_HINT
    do_backticks(advice, copy)
    assert "Put back the newest copy of the manifest" in advice
    manifest.write_bytes(newest)
    assert content(copy / "db")[0][0] == ROWS + 1


@pytest.mark.parametrize("harm", ["missing", "flipped"])
def test_format(copy: Path, harm: str) -> None:
    if harm == "missing":
        (copy / "db/FORMAT").unlink()
    else:
        (copy / "db/FORMAT").write_text("herdpx 2\n")
    (advice,) = advised(copy / "db")
    assert advice == FORMAT_HINT
    do_what = re.search(r"'(herdpy \d)'", advice)
    assert do_what is not None
    (copy / "db/FORMAT").write_text(do_what[1])
    assert content(copy / "db")[0][0] == ROWS + 1


def test_an_interrupted_restore(copy: Path) -> None:
    half = copy / "new"
    (half / "default/segments").mkdir(parents=True)
    (half / "RESTORE").touch()
    (advice,) = advised(half)
    assert advice == INTERRUPTED_RESTORE_HINT
    do_backticks(advice, copy)


def test_notes(copy: Path) -> None:
    left = copy / "db/default/segments/00000099.segment"
    left.touch()
    (copy / "db/FORMAT").chmod(0o644)
    said = herdpy_command("doctor", copy / "db")
    assert said.exit_code == 0
    assert "the next open removes it" in said.output
    chmod = re.search(r"chmod -R (\S+) (\S+)", said.output)
    assert chmod is not None
    for each in (copy / "db").rglob("*"):
        each.chmod(0o700 if each.is_dir() else 0o600)
    content(copy / "db")
    assert not left.exists()
    assert "note: " not in herdpy_command("doctor", copy / "db").output


def test_salvage_of_what_is_whole_ends_with_nothing(copy: Path) -> None:
    said = herdpy_command("dump", "--salvage", copy / "db", copy / "a.sql")
    assert (said.exit_code, f"t: {ROWS + 1:,} rows saved" in said.output) == (0, True)
    assert herdpy_command("shell", copy / "saved", "-f", copy / "a.sql").exit_code == 0
    assert content(copy / "saved") == content(copy / "db")


def test_salvage_reads_directories(copy: Path) -> None:
    said = herdpy_command("dump", "--salvage", "herd://ada:secret@localhost:1")
    assert said.exit_code == 1
    assert "expected a directory" in said.output
    with herdpy.connect(str(copy / "db")):
        said = herdpy_command("dump", "--salvage", copy / "db")
    assert "55006" in said.output


@pytest.mark.parametrize("harm", ["emptied", "missing"])
def test_a_lost_manifest(copy: Path, harm: str) -> None:
    manifest = copy / "db/default/MANIFEST"
    newest = manifest.read_bytes()
    if harm == "missing":
        manifest.unlink()
    else:
        manifest.write_bytes(b"")
    said = herdpy_command("dump", "--salvage", copy / "db", copy / "a.sql")
    assert said.exit_code == 1
    assert "MANIFEST" in said.output
    assert not (copy / "a.sql").exists()
    (advice,) = advised(copy / "db")
    assert "Without it nothing can be read" in advice
    do_backticks(advice, copy)
    assert "Put back a copy of the file" in advice
    manifest.write_bytes(newest)
    assert content(copy / "db")[0][0] == ROWS + 1
