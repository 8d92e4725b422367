"""`import herdpy` is light: nothing heavy, no thread, nothing of the host process changed."""

import json
import subprocess
import sys

import pytest

from tests.style.test_layers import HEAVY, ROOT

_PROBE = """
import gc, json, locale, logging, signal, sys, threading
def facts():
    return [gc.get_threshold(), gc.isenabled(), locale.setlocale(locale.LC_ALL),
            sys.excepthook.__name__, logging.root.level, len(logging.root.handlers),
            threading.active_count(),
            [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)]]
before = facts()
modules_before = set(sys.modules)
{statement}
print(json.dumps({{"new": sorted(set(sys.modules) - modules_before), "same": before == facts()}}))
"""


def probe(statement: str) -> dict[str, object]:
    ran = subprocess.run(
        [sys.executable, "-c", _PROBE.format(statement=statement)],
        cwd=ROOT, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return json.loads(ran.stdout)


@pytest.mark.parametrize(
    "statement",
    ["import herdpy", "import herdpy; herdpy.apilevel; herdpy.Error; herdpy.NUMBER; dir(herdpy)"],
)
def test_import_loads_nothing_heavy(statement: str) -> None:
    found = probe(statement)
    loaded = {str(name).split(".")[0] for name in found["new"]}  # type: ignore[attr-defined]
    assert "herdpy" in loaded
    assert not loaded & {*HEAVY, "msgspec", "sortedcontainers", "google_crc32c", "asyncio"}
    assert len(found["new"]) < 60, "that many modules take time"  # type: ignore[arg-type]
    assert found["same"], "gc, signals, locale, logging and threads are the host's"


def test_a_connection_to_a_server_loads_no_engine() -> None:
    found = probe(
        "import herdpy\n"
        "try: herdpy.connect('herd://127.0.0.1:1')\n"
        "except herdpy.OperationalError: pass"
    )
    names = {str(name) for name in found["new"]}  # type: ignore[attr-defined]
    assert "herdpy.driver.remote.session" in names
    assert not {name.split(".")[0] for name in names} & {*HEAVY, "sqlglot", "pyarrow"}
    assert not names & {"herdpy.driver.local", "herdpy.engine.database"}


def test_a_first_table_and_its_count_load_nothing_heavy() -> None:
    found = probe(
        "import herdpy\n"
        "connection = herdpy.connect(':memory:')\n"
        "connection.execute('CREATE TABLE t (id INTEGER PRIMARY KEY)')\n"
        "connection.executemany('INSERT INTO t VALUES (?)', [(1,), (2,)])\n"
        "assert connection.execute('SELECT count(*) FROM t').fetchall() == [(2,)]\n"
        "connection.close()"
    )
    names = {str(name).split(".")[0] for name in found["new"]}  # type: ignore[attr-defined]
    assert "msgspec" in names
    assert not names & {*HEAVY, "zipfile", "ssl", "socket"}


def test_the_command_line_needs_no_other_extra() -> None:
    found = probe("import herdpy.cli.app")
    names = {str(name).split(".")[0] for name in found["new"]}  # type: ignore[attr-defined]
    assert "click" in names
    assert not names & {"kazoo", "lmdb", "grpc", "google", "prometheus_client"}


_OPEN_COPY = """
import herdpy.engine.session.session
from bookie.runtime.drivers import ThreadDriver
from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_rng import OsRng
from herdpy.cluster.database_copy import DatabaseCopy
from herdpy.config import Config
from herdpy.engine.instance import Instance
from herdpy.model.settings import Settings
world = {'disk': MemoryDisk(), 'clock': OsClock(), 'rng': OsRng()}
world |= {'driver': ThreadDriver(), 'config': Config()}
copy = DatabaseCopy(lambda logs: Instance(**world, logs=logs, is_threaded=False),
                    None, world['driver'], ledger_bytes_max=1)
assert not {'herdpy.sql.compile', 'pyarrow', 'duckdb'} & set(sys.modules)
copy.open()
modules_before = set(sys.modules)
"""


def test_an_open_copy_has_loaded_what_its_first_statement_needs() -> None:
    found = probe(
        _OPEN_COPY + "copy.database.session(Settings()).execute('SELECT 1 + 1')\ncopy.close()"
    )
    assert found["new"] == []


def test_an_open_copy_has_loaded_what_adopts_pages_and_reads_them_by_vectors() -> None:
    found = probe(
        _OPEN_COPY + "import herdpy.exec.vector.duck, herdpy.storage.arrow_shadows\n"
        "import herdpy.storage.arrow_staged\ncopy.close()"
    )
    assert found["new"] == []


def test_the_probe_sees_a_heavy_module() -> None:
    assert "rich" in {str(n).split(".")[0] for n in probe("import rich.table")["new"]}  # type: ignore[attr-defined]


def test_public_names_are_all_there() -> None:
    import herdpy
    from herdpy import _HOMES

    for name in _HOMES:
        if name not in ("connect", "Connection", "Cursor"):
            assert getattr(herdpy, name) is not None
    assert set(_HOMES) <= set(dir(herdpy))
    with pytest.raises(AttributeError, match="no_such_name"):
        herdpy.no_such_name  # noqa: B018 - the access is the test
