"""What every test gets: a seed, hypothesis settings, a check that nothing of ours is left."""

import gc
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from herdpy.config import Config
from tests.fixtures import of_default
from tests.fixtures.engines import TABLESPACE

_SEED_VARIABLE = "HERDPY_SEED"
_RESERVE_BYTES = 2 * 1024 * 1024
_TURNS = 3
_FOREIGN_THREADS = ("pytest_timeout", "MainThread", "Dummy")

hypothesis.settings.register_profile(
    "herdpy",
    max_examples=int(os.environ.get("HERDPY_EXAMPLES", "25")),
    deadline=None,  # no real time in tests
    derandomize="CI" in os.environ,  # see pytest_configure
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("herdpy")


def pytest_configure(config: pytest.Config) -> None:
    # pytest keeps the directories of three runs: thousands of reserves of 64 MiB are too much.
    defaults = Config.__init__.__kwdefaults__
    assert defaults is not None
    defaults["disk_reserve_bytes"] = _RESERVE_BYTES
    # A shell that runs us in the background has SIGINT ignored, and with it what tests send.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # CI judges a commit, by the same histories every time; elsewhere every run draws new ones.
    drawn = 1 if "CI" in os.environ else random.SystemRandom().randrange(2**32)
    # Set in the controller before it starts workers, which inherit it.
    os.environ.setdefault(_SEED_VARIABLE, str(drawn))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--turn",
        type=int,
        metavar="N",
        help="of the tests marked exhaustive, run one in three: those whose turn it is in run N",
    )
    parser.addoption(
        "--longest-first",
        action="store_true",
        help="order files by the time that their slowest test may take, then by how many they have",
    )
    parser.addoption(
        "--no-samples",
        action="store_true",
        help="leave out the tests marked sample: what they do runs at length beside them",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if TABLESPACE is not None:
        of_default.mark(items)
    if config.getoption("no_samples"):
        samples = {item for item in items if item.get_closest_marker("sample")}
        items[:] = [item for item in items if item not in samples]
        config.hook.pytest_deselected(items=list(samples))
    turn = config.getoption("turn")
    if turn is not None:
        exhaustive = [item for item in items if item.get_closest_marker("exhaustive")]
        waiting = {item for n, item in enumerate(exhaustive) if n % _TURNS != turn % _TURNS}
        items[:] = [item for item in items if item not in waiting]
        config.hook.pytest_deselected(items=list(waiting))
    if config.getoption("longest_first"):
        _put_longest_first(items)


def _put_longest_first(items: list[pytest.Item]) -> None:
    """Order files, so that no worker begins what takes longest when the others end."""
    counts: Counter[Path] = Counter(item.path for item in items)
    limits: dict[Path, float] = {}
    for item in items:
        marker = item.get_closest_marker("timeout")
        limit_s = 0.0 if marker is None else float(marker.args[0])
        limits[item.path] = max(limit_s, limits.get(item.path, 0.0))
    items.sort(key=lambda item: (-limits[item.path], -counts[item.path]))  # each file as it was


def pytest_report_header(config: pytest.Config) -> str:
    value = os.environ[_SEED_VARIABLE]
    return f"seed: {value} (repeat with {_SEED_VARIABLE}={value})"


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of this run, printed in the header; tests that draw chance begin with it."""
    return int(os.environ[_SEED_VARIABLE])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.when == "call":
        item.stash[_has_passed] = report.passed
        if report.failed:
            value = os.environ[_SEED_VARIABLE]
            report.sections.append(
                ("seed", f"{_SEED_VARIABLE}={value} python -m pytest '{item.nodeid}'")
            )
    return report


_has_passed = pytest.StashKey[bool]()


def open_files(below: Path) -> set[tuple[str, str]]:
    """Return (descriptor, path) of this process's open files below a folder; Linux only."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        return set()
    found: set[tuple[str, str]] = set()
    for name in os.listdir(descriptors):
        try:
            target = os.readlink(descriptors / name)
        except OSError:  # the descriptor of this very listing
            continue
        if target.startswith(f"{below}{os.sep}"):
            found.add((name, target))
    return found


def live_threads() -> set[threading.Thread]:
    return {
        thread
        for thread in threading.enumerate()
        if not thread.name.startswith(_FOREIGN_THREADS)
        # grpc's own: on a loaded machine it may outlive its server by any time.
        and not thread.name.endswith("(_poll_wrapper)")
        # Of a database that a wider fixture opened, since its first query by DuckDB; of one that a
        # test leaves open its other threads tell.
        and thread.name != "herdpy-aside"
    }


def _is_of_spark(handler: object) -> bool:
    """Tell the handler of a Spark context, which is there for as long as the process."""
    return getattr(handler, "__module__", "").startswith("pyspark.")


@pytest.fixture(autouse=True)
def nothing_is_left(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Fail a test that leaves a thread, or an open file below pytest's folders, behind (I14).

    And one that leaves Ctrl-C to a handler of its own: the tests behind it in this process get it.
    """
    folder = tmp_path_factory.getbasetemp().resolve()
    threads_before, files_before = live_threads(), open_files(folder)
    handler_before = signal.getsignal(signal.SIGINT)
    yield
    handler = signal.getsignal(signal.SIGINT)
    if handler != handler_before and not _is_of_spark(handler):
        signal.signal(signal.SIGINT, handler_before)
        pytest.fail(f"left behind: {handler} for SIGINT")
    if not request.node.stash.get(_has_passed, False):
        return  # the traceback keeps the frames of a failed test, and with them what they opened
    if live_threads() - threads_before or open_files(folder) - files_before:
        gc.collect()
        threads = live_threads() - threads_before
        left = [f"thread {thread.name}" for thread in threads if thread.is_alive()]
        left += [f"file {path}" for _, path in sorted(open_files(folder) - files_before)]
        if left:
            pytest.fail(f"left behind: {', '.join(left)}")


@pytest.fixture
def in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one while the test runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent))
    return tmp_path
