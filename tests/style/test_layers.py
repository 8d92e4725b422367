"""The import rule, the places of the heavy libraries, and "no world" outside bookie/runtime.

Works on the syntax tree, so imports inside functions count; those under `if TYPE_CHECKING:` count
for the layers (a type is knowledge, too) but not for heavy libraries, which they do not load.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent

HERDPY = {
    "cli": 12,
    "node": 11,
    "aio": 11,
    "spark": 11,
    "driver": 10,
    "server": 10,
    "cluster": 9,
    "engine": 8,
    "features": 7,
    "exec": 6,
    "sql": 5,
    "log": 4,
    "storage": 4,
    "proto": 4,
    "model": 3,
    "config": 2,
    "errors": 1,
    "limits": 1,
}
BOOKIE = {
    "admin": 10,
    "management": 9,
    "hosting": 9,
    "autorecovery": 8,
    "client": 7,
    "server": 7,
    "lifecycle": 6,
    "proto": 5,
    "metadata": 5,
    "ledger": 4,
}
BOOKIE |= {"runtime": 3, "config": 2, "errors": 1, "extras": 1, "peer_shares": 1}
# Inside a package whose modules lie in folders: folder, or module beside the folders -> rank. A
# module that is not named lies above all that are.
SUBLAYERS = {
    "herdpy/engine": {
        "state": 1,
        "access": 2,
        "sequences": 2,
        "writes": 3,
        "maintenance": 3,
        "statements": 4,
        "session": 5,
    },
    "herdpy/driver": {
        "dsn": 1,
        "interfaces": 2,
        "grpc_stream": 2,
        "arguments": 2,
        "abandoned_claims": 3,
        "local": 4,
        "exports": 5,
        "remote": 6,
    },
    "herdpy/sql": {"reading": 1},
    "herdpy/server": {"login": 1, "limits": 2, "requests": 3},
    "bookie/server": {
        "node": 5,
        "bookie": 3,
        "cluster_ledgers": 3,
        "disk_watch": 3,
        "health": 3,
        "identity": 3,
        "lifecycle_watch": 3,
        "serving": 4,
        "tls": 3,
        "wire": 2,
        "storage": 2,
        "metrics": 1,
        "interfaces": 1,
    },
}
CONNECTOR = "spark_connector"
RANKS = {"herdpy": HERDPY, "bookie": BOOKIE}
# What herdpy may know of bookie.
BOOKIE_FACE = {
    "client", "metadata", "runtime", "config", "errors", "extras", "peer_shares", "hosting",
}  # fmt: skip
# SQL and execution declare what they need as Protocols; the engine implements them.
BLIND = {("sql", "log"), ("sql", "storage"), ("exec", "log"), ("exec", "storage")}

WORLD = {
    "_thread", "asyncio", "concurrent", "fcntl", "io", "mmap", "multiprocessing", "os", "pathlib",
    "random", "secrets", "select", "shutil", "signal", "socket", "subprocess", "tempfile",
    "threading", "time", "uuid",
}  # fmt: skip
WORLD_MAKERS = (
    "bookie/runtime/os_", "bookie/runtime/drivers.py", "herdpy/cli/", "bookie/admin/",
    "bookie/hosting.py",
)  # fmt: skip
# Loops are the world, but a simulated one can take their place: these run in both unmodified.
LOOP_USERS = (
    "bookie/autorecovery/", "bookie/client/", "bookie/server/", "bookie/metadata/",
    "bookie/lifecycle/", "bookie/management/", "bookie/runtime/http.py", "herdpy/server/",
    "herdpy/aio/", "herdpy/cluster/", "herdpy/node/",
)  # fmt: skip
# (module, path): what each may have of the world beside, and why.
WORLD_EXCEPTIONS = {
    ("os", "bookie/runtime/paths.py"): "strerror, the text of an errno",
    ("os", "herdpy/driver/dsn.py"): "real paths, so that every spelling names one database",
    ("os", "herdpy/driver/connection.py"): "os.PathLike in a signature",
    ("os", "herdpy/driver/pool.py"): "os.PathLike in a signature",
    ("os", "herdpy/aio/connection.py"): "os.PathLike in a signature",
    ("socket", "herdpy/aio/stream.py"): "the names of options that a loop does not set",
    ("os", "herdpy/driver/exports.py"): "os.PathLike in a signature",
    ("os", "herdpy/driver/backup_sets.py"): "os.PathLike in a signature",
    ("os", "herdpy/driver/restoring.py"): "os.PathLike in a signature",
    ("os", "herdpy/driver/doctor.py"): "os.PathLike in a signature",
    ("io", "herdpy/driver/box.py"): "StringIO",
    ("os", "herdpy/node/node.py"): "os.PathLike in a signature",
    (
        "pathlib",
        "herdpy/node/place.py",
    ): "files of logins and of TLS, which os_input_files.py reads",
    ("os", "herdpy/server/login/audit_file.py"): "the file of the audit log",
    ("pathlib", "herdpy/server/login/tls.py"): "ssl reads certificates from files only",
    (
        "pathlib",
        "herdpy/driver/remote/grpc_target.py",
    ): "certificates, beside ssl, which reads files",
}
RUNTIME_PARTS = ("os_clock", "os_disk", "os_rng", "drivers", "memory_disk")
ALLOWED_PARTS = (["new_mutex"], ["Mutex"], ["let_others_in"])
WORLD_BUILDER = "herdpy/driver/local.py"

HEAVY = {
    "duckdb": ("herdpy/exec/vector/",),
    "pyarrow": ("herdpy/storage/arrow", "herdpy/exec/vector/"),
    "sqlglot": (),
    "rich": ("herdpy/driver/box.py", "herdpy/cli/", "bookie/admin/"),
    "pandas": (),
    "numpy": (),
    "prompt_toolkit": ("herdpy/cli/",),
    "click": ("herdpy/cli/", "bookie/admin/"),
    "kazoo": ("bookie/metadata/zookeeper.py", "bookie/metadata/kazoo_client.py"),
    "scramp": ("herdpy/proto/scram.py", "herdpy/engine/access/passwords.py"),
    "asn1crypto": (
        "bookie/runtime/os_tls/files.py",
        "herdpy/proto/scram.py",
        "herdpy/server/login/certificates.py",
    ),
    "lmdb": ("bookie/server/storage/lmdb_index.py",),
    "prometheus_client": (
        "bookie/admin/",
        "bookie/runtime/metrics.py",
        "bookie/server/metrics.py",
        "herdpy/server/operations/metrics.py",
        "herdpy/server/operations/node_metrics.py",
    ),
    "grpc": ("herdpy/server/grpc/", "herdpy/driver/grpc_stream.py"),
    "grpc_health": ("herdpy/server/grpc/",),
    "grpc_reflection": ("herdpy/server/grpc/",),
    "google": (
        "bookie/autorecovery/formats.py",
        "bookie/proto/",
        "bookie/ledger/",
        "bookie/metadata/",
        "herdpy/server/grpc/message_costs.py",
    ),
    "greenlet": ("herdpy/aio/switching.py",),
    "pyspark": (),
    "pyspark_herdpy": (),
    "uvloop": ("bookie/admin/", "bookie/runtime/os_executors.py"),
}


class Import(NamedTuple):
    module: str
    line: int
    is_typing_only: bool


def imports(tree: ast.AST, *, is_typing_only: bool = False) -> Iterator[Import]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, is_typing_only)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield Import("." * node.level, node.lineno, is_typing_only)
                continue
            assert node.module is not None
            # `from herdpy import errors` is an import of herdpy.errors.
            for alias in node.names:
                yield Import(f"{node.module}.{alias.name}", node.lineno, is_typing_only)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for child in node.body:
                wrapped = ast.Module([child], [])
                yield from imports(wrapped, is_typing_only=True)
        else:
            yield from imports(node, is_typing_only=is_typing_only)


def layer_of(path: str) -> tuple[str, str]:
    """Return ("herdpy", "sql") for herdpy/sql/bind.py; ("herdpy", "") for the package itself."""
    parts = path.removesuffix(".py").split("/")
    return parts[0], "" if parts[1] == "__init__" else parts[1]


def violations(path: str, source: str) -> list[str]:
    """Return one line for each broken rule of one file; path is relative to the checkout."""
    package, layer = layer_of(path)
    found: list[str] = []
    for module, line, is_typing_only in imports(ast.parse(source)):
        broken = [
            _sublayers(path, module),
            _layers(package, layer, module),
            None if package == CONNECTOR else _world(path, module),
            None if is_typing_only or package == CONNECTOR else _heavy(path, module),
            _loads(package, module) if not is_typing_only else None,
        ]
        found += [f"{path}:{line}: imports {module}: {reason}" for reason in broken if reason]
    return found


def _layers(package: str, layer: str, module: str) -> str | None:
    parts = module.split(".")
    if module.startswith("."):
        return "relative imports are banned"
    if package == CONNECTOR:
        return _connector(parts)
    if parts[0] in ("tests", "examples"):
        return "production code does not know its tests"
    if parts[0] not in RANKS:
        return None
    target = parts[1] if len(parts) > 1 else ""
    if parts[0] != package:
        if package == "bookie":
            return "bookie never imports herdpy"
        return None if target in BOOKIE_FACE else f"bookie.{target} is not bookie's face"
    ranks = RANKS[package]
    if target not in ranks:
        return f"{package}.{target} is no layer; the package itself is not imported"
    if layer == "" or target == layer:
        return None
    if layer not in ranks:
        return f"{package}.{layer} has no rank in test_layers.py"
    if ranks[target] >= ranks[layer]:
        return f"{layer} may import downwards only"
    return f"{layer} knows no {target}" if (layer, target) in BLIND else None


def _sublayers(path: str, module: str) -> str | None:
    """Judge an import within one folder of SUBLAYERS by the ranks of that folder."""
    imported = module.replace(".", "/")
    for folder, ranks in SUBLAYERS.items():
        if not (path.startswith(f"{folder}/") and imported.startswith(f"{folder}/")):
            continue
        source, target = _child(folder, path.removesuffix(".py")), _child(folder, imported)
        top = max(ranks.values()) + 1
        if source in ("__init__", target) or (source not in ranks and target not in ranks):
            continue
        if ranks.get(target, top) >= ranks.get(source, top):
            return f"in {folder}, {source} may not import {target}"
    return None


def _child(folder: str, path: str) -> str:
    """Return "wire" for bookie/server and bookie/server/wire/hub."""
    return path[len(folder) + 1 :].split("/")[0]


def _connector(parts: list[str]) -> str | None:
    """The connector is a program beside herdpy: it knows what every program knows."""
    if parts[0] in ("bookie", "tests", "examples"):
        return f"{CONNECTOR} knows no {parts[0]}"
    if parts[0] == "herdpy" and len(parts) > 1 and parts[1] != "driver":
        return f"{CONNECTOR} uses the public driver only"
    return None


def _world(path: str, module: str) -> str | None:
    parts = module.split(".")
    if parts[:2] == ["bookie", "runtime"] and path.startswith("herdpy/") and len(parts) > 2:
        makes_world = parts[2] in RUNTIME_PARTS and parts[3:] not in ALLOWED_PARTS
        if makes_world and path != WORLD_BUILDER:
            return f"only {WORLD_BUILDER} builds clocks, disks, chance and threads"
        return None
    if parts[0] not in WORLD or path.startswith(WORLD_MAKERS):
        return None
    if (parts[0], path) in WORLD_EXCEPTIONS:
        return None
    if parts[0] == "asyncio" and path.startswith(LOOP_USERS):
        return None
    return "only bookie/runtime touches time, disks, threads and chance"


def _loads(package: str, module: str) -> str | None:
    """Names of the driver's modules are for type checkers only."""
    is_inner = package == CONNECTOR and module.startswith("herdpy.driver")
    return "only `import herdpy`, which loads what is used" if is_inner else None


def _heavy(path: str, module: str) -> str | None:
    homes = HEAVY.get(module.split(".")[0])
    if homes is None or any(path.startswith(home) for home in homes):
        return None
    return f"only in {', '.join(homes) or 'tests'}"


def product_files() -> list[str]:
    """Return what people wrote; generated code obeys its generator (test_generated.py)."""
    files = [
        *ROOT.glob("herdpy/**/*.py"),
        *ROOT.glob("bookie/**/*.py"),
        *ROOT.glob(f"{CONNECTOR}/**/*.py"),
    ]
    paths = sorted(file.relative_to(ROOT).as_posix() for file in files)
    return [path for path in paths if not path.endswith("_pb2.py")]


def test_every_import_obeys() -> None:
    files = product_files()
    assert len(files) > 20, "the glob finds nothing: this test would pass over an empty house"
    found = [line for path in files for line in violations(path, (ROOT / path).read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("bookie/runtime/ticket.py", "import herdpy.errors"),
        ("bookie/ledger/writer.py", "from bookie.client import reader"),
        ("herdpy/sql/bind.py", "from herdpy.exec.coerce import to_physical"),
        ("herdpy/sql/bind.py", "def f():\n    from herdpy.engine import session"),
        ("herdpy/exec/coerce.py", "from herdpy.storage.page import Page"),
        ("herdpy/exec/coerce.py", "from herdpy import log"),
        ("herdpy/log/record.py", "import herdpy.storage.page"),
        ("herdpy/model/keys.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
         "    from herdpy.sql.tree import Query"),
        ("herdpy/limits.py", "from herdpy import errors"),
        ("herdpy/model/keys.py", "import herdpy"),
        ("herdpy/engine/session/session.py", "from . import locks"),
        ("herdpy/engine/state/locks.py", "from herdpy.engine.access import rights"),
        ("herdpy/engine/writes/inserts.py", "from herdpy.engine.maintenance import pins"),
        ("herdpy/engine/session/session.py", "from herdpy.engine.database import Database"),
        ("herdpy/server/login/gate.py", "from herdpy.server.hub import Hub"),
        ("bookie/server/storage/flush.py", "from bookie.server import bookie"),
        ("bookie/server/storage/flush.py", "from bookie.server.wire.hub import Hub"),
        ("bookie/server/wire/hub.py", "from bookie.server.node import BookieNode"),
        ("bookie/server/identity.py", "from bookie.server.bookie import Bookie"),
        ("herdpy/engine/session/session.py", "from tests.sim import disk"),
        ("herdpy/engine/session/session.py", "from bookie.server import frames"),
        ("herdpy/engine/session/session.py", "from bookie.runtime.os_disk import OsDisk"),
        ("herdpy/engine/session/session.py", "from bookie.runtime.drivers import ThreadDriver"),
        ("herdpy/engine/session/session.py", "import time"),
        ("herdpy/log/file_log.py", "from os import fsync"),
        ("herdpy/log/file_log.py", "try:\n    import threading\nexcept ImportError:\n    pass"),
        ("bookie/runtime/ticket.py", "import threading"),
        ("herdpy/storage/page.py", "import pyarrow as pa"),
        ("herdpy/engine/session/session.py", "def f():\n    import duckdb"),
        ("herdpy/exec/row/select.py", "from sqlglot import exp"),
        ("spark_connector/pyspark_herdpy/a.py", "from herdpy.engine import session"),
        ("spark_connector/pyspark_herdpy/a.py", "from herdpy.driver.leases import Partition"),
        ("spark_connector/pyspark_herdpy/a.py", "import bookie"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_found(path: str, source: str) -> None:
    assert violations(path, source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("herdpy/__init__.py", "from herdpy.driver.connection import connect"),
        ("herdpy/engine/session/session.py", "from herdpy.sql import tree\n"
         "from bookie.runtime.ticket import Ticket\nfrom bookie.runtime.drivers import new_mutex"),
        ("herdpy/driver/cursor.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
         "    import pyarrow as pa"),
        ("bookie/runtime/os_disk.py", "import os, mmap"),
        ("herdpy/engine/database.py", "from herdpy.engine.session.session import Session"),
        ("bookie/server/wire/hub.py", "from bookie.server.wire.connection import Connection"),
        ("bookie/server/bookie.py", "from bookie.server.storage.journal import Journal"),
        ("herdpy/engine/writes/inserts.py", "from herdpy.engine.writes.row_writes import Change"),
        ("spark_connector/pyspark_herdpy/a.py", "import herdpy, os, pyspark"),
    ],
)  # fmt: skip
def test_what_is_allowed_passes(path: str, source: str) -> None:
    assert violations(path, source) == []


def test_exceptions_are_still_needed() -> None:
    for module, path in WORLD_EXCEPTIONS:
        used = {item.module.split(".")[0] for item in imports(ast.parse((ROOT / path).read_text()))}
        assert module in used, f"{path} no longer imports {module}: drop the exception"
