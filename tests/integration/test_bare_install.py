"""A bare install runs databases and reaches servers; what needs an extra says which.

Here every package is installed; a process is bare when it cannot import those of the extras
(tests/fixtures/bare_install.py). `make bare` does the same in an environment of its own.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from bookie.extras import EXTRAS
from tests.fixtures.bare_install import BLOCKED
from tests.fixtures.served import served
from tests.style.test_layers import ROOT

pytestmark = pytest.mark.integration

_BARE = """import sys
from tests.fixtures.bare_install import Blocked
sys.meta_path.insert(0, Blocked)
"""
_RUN = "sys.argv = {}\nfrom {} import main\nmain()"


def bare(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program where nothing of the extras can be imported."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", _BARE + program, *arguments],
        cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


_SUITES = [f"tests/dbapi/test_{name}.py" for name in ("compliance", "driver", "staging", "arrow")]
"""The public suite and what moves most data; `make bare` runs the whole folder."""


@pytest.mark.long
@pytest.mark.timeout(580)
def test_db_api_suites_embedded_and_over_tcp() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.fixtures.bare_install", *_SUITES],
        cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-10_000:] + ran.stderr[-2_000:]
    (passed,) = re.findall(r"(\d+) passed", ran.stdout)
    assert int(passed) > 200, "the plugin leaves tests out that it should not"


def test_logins(tmp_path: Path) -> None:
    made = bare(
        "import herdpy\n"
        "with herdpy.connect(sys.argv[1]) as c:\n"
        "    c.execute('CREATE TABLE t (id BIGINT PRIMARY KEY)')\n"
        "    c.execute(\"CREATE USER ada PASSWORD 'a long secret'\")\n"
        "    c.execute('GRANT ALL ON t TO ada')\n",
        str(tmp_path / "data"),
    )
    assert (made.returncode, made.stderr) == (0, "")
    with served(tmp_path / "data") as server:
        found = bare(
            "import herdpy\n"
            "with herdpy.connect(sys.argv[1]) as c:\n"
            "    c.execute('INSERT INTO t VALUES (1)')\n"
            "    print(c.execute('SELECT id FROM t').fetchall())\n",
            server.url.replace("herd://", "herd://ada:a%20long%20secret@"),
        )
    assert (found.stdout, found.stderr) == ("[(1,)]\n", "")


@pytest.mark.parametrize(
    ("program", "extra"),
    [
        (_RUN.format(["herdpy", "shell"], "herdpy.cli.commands"), "cli"),
        (_RUN.format(["herdpy", "serve", "data"], "herdpy.cli.commands"), "server"),
        (_RUN.format(["bookie", "local"], "bookie.admin.commands"), "bookie"),
    ],
)
def test_a_command_without_its_extra(program: str, extra: str) -> None:
    found = bare(program)
    assert found.returncode == 1
    assert found.stdout == ""
    assert f"needs the extra '{extra}', of which click" in found.stderr
    assert found.stderr.endswith(f" -m pip install 'herdpy-db[{extra}]'\n")
    assert "Traceback" not in found.stderr


def test_a_grpc_url_without_grpc() -> None:
    found = bare(
        "import herdpy\n"
        "try: herdpy.connect('herd+grpc://127.0.0.1:1')\n"
        "except herdpy.InterfaceError as error: print(error)\n"
    )
    assert "needs the extra 'server', of which google.protobuf and grpc are not" in found.stdout
    assert "pip install 'herdpy-db[server]'" in found.stdout


def test_a_zookeeper_url_without_kazoo() -> None:
    found = bare(
        "import herdpy\n"
        "try: herdpy.connect('herd+zk://127.0.0.1:1')\n"
        "except herdpy.InterfaceError as error: print(error)\n"
    )
    assert "a herd+zk:// URL needs the extra 'bookie', of which" in found.stdout
    assert "pip install 'herdpy-db[bookie]'" in found.stdout


def test_a_node_without_kazoo() -> None:
    found = bare(
        "import herdpy\n"
        "try: herdpy.Node('n1')\n"
        "except herdpy.InterfaceError as error: print(error)\n"
    )
    assert "a node of a cluster needs the extra 'bookie', of which" in found.stdout
    assert "pip install 'herdpy-db[bookie]'" in found.stdout


@pytest.mark.parametrize(
    "module", ["bookie.client.client", "bookie.metadata.zookeeper", "bookie.server.node"]
)
def test_a_ledger_client_without_its_extra(module: str) -> None:
    found = bare(f"try: import {module}\nexcept ImportError as error: print(repr(error))")
    assert found.stderr == ""
    assert found.stdout.startswith("MissingExtraError(")
    assert "pip install 'herdpy-db[bookie]'" in found.stdout


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def distributions(names: Sequence[str], extras: dict[str, list[str]]) -> set[str]:
    """Return the distributions of requirements; of those of this project, its extras' own."""
    found: set[str] = set()
    for requirement in names:
        inner = re.fullmatch(r"herdpy-db\[([\w,]+)\]", requirement)
        if inner is None:
            found.add(normal(re.split(r"[<>=\[]", requirement)[0]))
        else:
            for extra in inner[1].split(","):
                found |= distributions(extras[extra], extras)
    return found


def test_the_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    brought_by = packages_distributions()
    for extra, modules in EXTRAS.items():
        owners = [set(map(normal, brought_by[module.split(".")[0]])) for module in modules]
        listed = distributions(extras[extra], extras)
        assert all(owner & listed for owner in owners), extra
        assert all(any(name in owner for owner in owners) for name in listed), extra
    everything = distributions(extras["all"], extras)
    for extra in ("aio", "bookie", "cli", "fast", "server"):
        assert distributions(extras[extra], extras) <= everything
    assert everything <= distributions(extras["dev"], extras)
    base = distributions(project["dependencies"], extras)
    tops = {module.split(".")[0] for module in BLOCKED}
    assert not {normal(name) for top in tops for name in brought_by[top]} & base
