"""HerdDB as a peer: fetched by Maven, our programs for it (java/*.java) compiled, started."""

import os
from collections.abc import Sequence
from pathlib import Path

from bookie.admin.zookeeper_process import find_java
from bookie.errors import BookieStartError
from tests.fixtures.line_process import LineProcess
from tests.fixtures.maven import compiled, fetch, missing_tool

VERSION = "0.29.0"
_FOLDER = Path(__file__).parent / "java"
_BUILD = Path(__file__).parents[2] / "build" / "herddb" / VERSION
_JVM = ("-Xms1g", "-Xmx2g")


class NoHerdDbError(Exception):
    """It cannot be had here; the text says why."""


class HerdDb:
    """The command that starts a program of ours; made once for a checkout, NoHerdDbError."""

    def __init__(self, program: str = "HerdDb", jvm: Sequence[str] = _JVM) -> None:
        try:
            java = find_java()
        except BookieStartError as error:
            raise NoHerdDbError(str(error)) from error
        missing = missing_tool()
        if missing is not None:
            raise NoHerdDbError(f"to fetch and use HerdDB, {missing}")
        reason = fetch(_FOLDER / "pom.xml", _BUILD, herddb_version=VERSION)
        if reason is not None:
            raise NoHerdDbError(f"HerdDB cannot be fetched with Maven on this machine: {reason}")
        classes = compiled(_FOLDER.glob("*.java"), _BUILD)
        path = f"{classes}{os.pathsep}{_BUILD / 'jars'}/*"
        self._command = [str(java), *jvm, "-cp", path, program]

    def start(self, *words: object) -> LineProcess:
        """Start it with what its source says, such as "server", directory and port."""
        return LineProcess([*self._command, *map(str, words)])
