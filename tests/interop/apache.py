"""Apache BookKeeper as the other side: fetched by Maven, compiled against, started, driven.

So are the systems that keep their logs in it: DistributedLog, and the managed ledger of Pulsar.
Maven puts the jars into build/interop/; nothing fetched is committed. Where Maven, its repository
or a JDK is not to be had, `require` skips and says which.
"""

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from bookie.admin.zookeeper_process import HOST, find_java
from bookie.errors import BookieStartError
from bookie.runtime.os_child_process import ChildProcess
from tests.fixtures.line_process import LineProcess
from tests.fixtures.maven import compiled, fetch, missing_tool
from tests.fixtures.ports import own_port

ROOT = Path(__file__).parent.parent.parent
BUILD = ROOT / "build" / "interop"
SOURCES = Path(__file__).parent
SHARED = ("Log.java", "Peer.java")
"""Of bookkeeper/: what the programs of all kinds are made of."""
# By kind: the folder of its pom.xml and its programs, a prefix that tells its jars from those of
# others, and versions, the newest first: the first that the repository has is taken.
KINDS = {
    "current": ("bookkeeper", "", ("4.17.5", "4.17.4", "4.17.3", "4.17.2")),
    "old": ("bookkeeper", "", ("4.14.8", "4.14.7", "4.14.6")),
    "distributedlog": ("distributedlog", "distributedlog-", ("4.17.3", "4.17.2")),
    "managedledger": ("managedledger", "managedledger-", ("4.0.7", "4.0.1")),
}
SMALL_JVM = (
    "-Xmx192m",
    "-XX:MaxDirectMemorySize=192m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
)
BENCH_JVM = ("-Xms512m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")
_OPENED = ("java.nio", "java.lang", "java.io", "sun.nio.ch", "jdk.internal.misc")
_LOG4J2 = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""
_LOG4J1 = """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %-5p %c{1}: %m%n
"""
# What the shell prints, it logs.
_SHELL_LOG4J2 = _LOG4J2.replace("level = warn", "level = info").replace("SYSTEM_ERR", "SYSTEM_OUT")
_SHELL_LOG4J1 = _LOG4J1.replace("WARN", "INFO").replace("System.err", "System.out")


class CannotFetchError(Exception):
    """Says what this machine lacks."""


@dataclass(frozen=True)
class Release:
    """One version of one kind, ready to run, with our programs compiled against it."""

    version: str
    classpath: str

    def command(
        self, main: str, *arguments: str, jvm: tuple[str, ...] = SMALL_JVM, is_shell: bool = False
    ) -> list[str]:
        kind = "shell" if is_shell else "quiet"
        opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
        return [
            str(find_java()),
            *jvm,
            *opens,
            "-Dio.netty.tryReflectionSetAccessible=true",
            f"-Dlog4j2.configurationFile={BUILD / f'{kind}.log4j2.properties'}",
            f"-Dlog4j.configuration=file:{BUILD / f'{kind}.log4j1.properties'}",
            "-cp",
            self.classpath,
            main,
            *arguments,
        ]


def require(kind: str) -> Release:
    """Return a release of one of KINDS, or skip the test with the reason."""
    found = _release_or_reason(kind)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@cache
def _release_or_reason(kind: str) -> Release | str:
    try:
        return release(kind)
    except CannotFetchError as error:
        return str(error)


def release(kind: str) -> Release:
    """Fetch and compile, once for each checkout; CannotFetchError."""
    try:
        find_java()
    except BookieStartError as error:
        raise CannotFetchError(str(error)) from error
    missing = missing_tool()
    if missing is not None:
        raise CannotFetchError(f"to fetch and use Apache BookKeeper, {missing}")
    BUILD.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("quiet.log4j2", _LOG4J2),
        ("quiet.log4j1", _LOG4J1),
        ("shell.log4j2", _SHELL_LOG4J2),
        ("shell.log4j1", _SHELL_LOG4J1),
    ):
        (BUILD / f"{name}.properties").write_text(text)
    said: list[str] = []
    name, prefix, versions = KINDS[kind]
    folders = {version: BUILD / f"{prefix}{version}" for version in versions}
    # What is there already is taken without asking the repository for a newer one.
    ready = [version for version in versions if (folders[version] / "complete").exists()]
    for version in ready or versions:
        reason = fetch(SOURCES / name / "pom.xml", folders[version], release_version=version)
        if reason is None:
            return _compiled(version, SOURCES / name, folders[version])
        said.append(f"{version}: {reason}")
    raise CannotFetchError(
        f"{name} cannot be fetched with Maven on this machine: " + "; ".join(said)
    )


def _compiled(version: str, programs: Path, folder: Path) -> Release:
    sources = {*(SOURCES / "bookkeeper" / name for name in SHARED), *programs.glob("*.java")}
    classes = compiled(sources, folder)
    return Release(version, f"{classes}{os.pathsep}{folder / 'jars'}/*")


class Program(LineProcess):
    """One of our Java programs under way; its arguments are name=value."""

    def __init__(
        self, release: Release, main: str, *, jvm: tuple[str, ...] = SMALL_JVM, **arguments: object
    ) -> None:
        texts = [f"{name}={value}" for name, value in arguments.items()]
        super().__init__(release.command(main, *texts, jvm=jvm))


class ApacheBookie:
    """One of Apache's bookies in a directory of its own."""

    def __init__(
        self,
        release: Release,
        zookeeper_hosts: str,
        directory: Path,
        *,
        jvm: tuple[str, ...] = SMALL_JVM,
        root: str = "/ledgers",
        storage: str = "InterleavedLedgerStorage",
        more: str = "",
    ) -> None:
        """more: lines of its configuration beside those of server_conf()."""
        self._release = release
        self._jvm = jvm
        self.port = own_port()
        self.bookie_id = f"{HOST}:{self.port}"
        directory.mkdir(parents=True)
        self._directory = directory
        self.conf = directory / "bk_server.conf"
        conf = server_conf(zookeeper_hosts, directory, self.port, root, storage)
        self.conf.write_text(conf + more)
        self._child: ChildProcess | None = None

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def command(self) -> list[str]:
        """What starts it, here or anywhere."""
        main = "org.apache.bookkeeper.server.Main"
        return self._release.command(main, "--conf", str(self.conf), jvm=self._jvm)

    @property
    def log(self) -> Path:
        return self._directory / "bookie.log"

    def start(self) -> None:
        """Start it; wait for its registration, which is the caller's to see."""
        self._child = ChildProcess(self.command, self.log)

    def has_started(self) -> bool:
        return True  # its registration says so: it is started once

    def check_alive(self) -> None:
        assert self._child is not None
        assert self._child.exit_code() is None, self._child.log_tail()

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def close(self) -> None:
        if self._child is not None:
            self._child.stop(20)


class ApacheRecovery:
    """One of Apache's AutoRecovery processes, with an auditor and a worker; started when made."""

    def __init__(
        self, release: Release, zookeeper_hosts: str, directory: Path, root: str, more: str
    ) -> None:
        directory.mkdir(parents=True)
        conf = directory / "autorecovery.conf"
        base = server_conf(zookeeper_hosts, directory, own_port(), root)
        conf.write_text(base + more)
        self._child = ChildProcess(
            release.command(
                "org.apache.bookkeeper.replication.AutoRecoveryMain", "--conf", str(conf)
            ),
            directory / "autorecovery.log",
        )

    def log(self) -> str:
        return self._child.log_tail()

    def kill(self) -> None:
        self._child.kill()


def server_conf(
    zookeeper_hosts: str,
    directory: Path,
    port: int,
    root: str = "/ledgers",
    storage: str = "InterleavedLedgerStorage",
) -> str:
    return (
        f"metadataServiceUri=zk+hierarchical://{zookeeper_hosts}{root}\n"
        f"bookiePort={port}\n"
        f"journalDirectories={directory / 'journal'}\n"
        f"ledgerDirectories={directory / 'ledgers'}\n"
        "allowLoopback=true\n"
        f"advertisedAddress={HOST}\n"
        f"ledgerStorageClass=org.apache.bookkeeper.bookie.{storage}\n"
        "statsProviderClass=org.apache.bookkeeper.stats.NullStatsProvider\n"
        "enableStatistics=false\n"
        "httpServerEnabled=false\n"
        "diskUsageThreshold=0.99\n"
        "diskUsageWarnThreshold=0.98\n"
        "journalPreAllocSizeMB=16\n"
        "digestType=CRC32C\n"
    )


def shell(
    release: Release,
    conf: Path,
    *arguments: str,
    timeout_s: float = 120,
    jvm: tuple[str, ...] = SMALL_JVM,
) -> str:
    """Run Apache's BookieShell; return what it printed. AssertionError when it fails."""
    run = subprocess.run(
        release.command(
            "org.apache.bookkeeper.bookie.BookieShell",
            "-conf",
            str(conf),
            *arguments,
            jvm=jvm,
            is_shell=True,
        ),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    printed = run.stdout + run.stderr
    assert run.returncode == 0, f"{' '.join(arguments)}: exit {run.returncode}\n{printed[-6000:]}"
    return printed


def wait_for_bookies(zookeeper_hosts: str, count: int, root: str = "/ledgers") -> list[str]:
    """Return the writable bookies once there are `count` of them, of either kind."""
    client = KazooClient(zookeeper_hosts)
    client.start(20)
    enough = threading.Event()
    found: list[str] = []

    @client.ChildrenWatch(f"{root}/available")
    def _(names: list[str]) -> None:
        found[:] = sorted(name for name in names if name != "readonly")
        if len(found) >= count:
            enough.set()

    try:
        assert enough.wait(60), f"{count} bookies should have registered, there are {found}"
        return list(found)
    finally:
        client.stop()
        client.close()


def run_program(
    release: Release, main: str, *, jvm: tuple[str, ...] = SMALL_JVM, **arguments: object
) -> list[dict[str, Any]]:
    """Run one of our Java programs to its end; return its lines."""
    with Program(release, main, jvm=jvm, **arguments) as program:
        return program.finish()


@contextlib.contextmanager
def apache_bookies(
    release: Release, zookeeper_hosts: str, directory: Path, count: int, **settings: Any
) -> Iterator[list[ApacheBookie]]:
    """Start `count` bookies; the caller waits for their registration."""
    bookies: list[ApacheBookie] = []
    try:
        for number in range(count):
            bookie = ApacheBookie(
                release, zookeeper_hosts, directory / f"apache-{number}", **settings
            )
            bookies.append(bookie)
            bookie.start()
        yield bookies
    finally:
        for bookie in bookies:
            bookie.kill()
