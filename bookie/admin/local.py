"""`bookie local N`: ZooKeeper and N bookies on this machine, for as long as the command runs.

Every bookie is a process of its own, so that one can be killed, stopped or looked at. With --data
the ports, ids and data stay the same from one run to the next.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
from rich.text import Text

from bookie.admin.output import Output
from bookie.admin.world import LOGIN_VARIABLE, Cluster, json_option
from bookie.admin.zookeeper_jars import fetch, is_fetch_needed
from bookie.admin.zookeeper_process import HOST, ZooKeeperProcess, free_port, start_zookeeper
from bookie.errors import BookieStartError, CorruptFileError
from bookie.metadata.bookies import BookieDirectory
from bookie.metadata.cluster import DEFAULT_ROOT, initialize, is_initialized
from bookie.runtime.os_child_process import ChildProcess, python_command
from bookie.runtime.os_executors import run
from bookie.runtime.os_rng import OsRng

BOOKIES_MAX = 64
_ZOOKEEPER_PORT = 2181
_BOOKIE_PORT = 3181
_PLAN_FILE = "local.json"
_START_LIMIT_S = 60.0
_STOP_GRACE_S = 15.0
_LOOK_EVERY_S = 0.2
TICK_MS = 2000
_OTHER_CLUSTERS = (LOGIN_VARIABLE, "BOOKIE_ZK_ENABLE_SECURITY", "BOOKIE_ZOOKEEPER_TLS_TRUST")
"""Variables of `bookie serve` that begin so are about clusters that are not local."""


@dataclass
class Plan:
    """The ports of one directory, kept in its local.json."""

    zookeeper_port: int
    bookie_ports: list[int]


class LocalCluster:
    """The processes; start() them, close() them."""

    def __init__(self, directory: Path, plan: Plan, tick_ms: int = TICK_MS) -> None:
        self.directory = directory
        self.plan = plan
        self._tick_ms = tick_ms
        self.zookeeper: ZooKeeperProcess | None = None
        self.bookies: dict[str, ChildProcess] = {}

    @property
    def cluster(self) -> Cluster:
        return Cluster(f"{HOST}:{self.plan.zookeeper_port}", DEFAULT_ROOT)

    def start(self) -> None:
        """Start all, make the cluster if there is none, wait until every bookie is registered."""
        self.zookeeper = start_zookeeper(
            self.directory / "zookeeper", self.plan.zookeeper_port, tick_ms=self._tick_ms
        )
        run(self._format())
        for number, port in enumerate(self.plan.bookie_ports, 1):
            self._start_bookie(number, port)
        run(self._all_registered())

    def _start_bookie(self, number: int, port: int) -> None:
        name = f"bookie-{number}"
        command = python_command(
            "bookie.admin.commands", "serve",
            "--zookeeper", self.cluster.zookeeper, "--root", self.cluster.root,
            "--data", str(self.directory / name), "--host", HOST, "--port", str(port),
        )  # fmt: skip
        # Its ZooKeeper is open, and so is its cluster, whatever the shell is set up for.
        environment = {k: v for k, v in os.environ.items() if not k.startswith(_OTHER_CLUSTERS)}
        self.bookies[f"{HOST}:{port}"] = ChildProcess(
            command, self.directory / f"{name}.log", environment
        )

    async def _format(self) -> None:
        async with self.cluster.session() as store:
            if not await is_initialized(store, self.cluster.root):
                await initialize(store, self.cluster.root, rng=OsRng())

    async def _all_registered(self) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        async with self.cluster.session() as store:
            directory = BookieDirectory(store, self.cluster.root)
            await directory.start()
            try:
                while missing := set(self.bookies) - directory.registered:
                    self._check_starting(missing, is_too_late=time.monotonic() > deadline)
                    await asyncio.sleep(0.05)
            finally:
                await directory.close()

    def _check_starting(self, missing: set[str], *, is_too_late: bool) -> None:
        for bookie_id in sorted(missing):
            child = self.bookies[bookie_id]
            if child.exit_code() is not None or is_too_late:
                what = "ended" if child.exit_code() is not None else "did not register"
                raise BookieStartError(
                    f"bookie {bookie_id} {what} (log: {child.log}):\n{child.log_tail()}"
                )

    def ended(self) -> dict[str, ChildProcess]:
        """Return the bookies that have ended since the last call."""
        ended = {name: c for name, c in self.bookies.items() if c.exit_code() is not None}
        for name, child in ended.items():
            del self.bookies[name]
            child.stop(0)
        return ended

    def close(self) -> None:
        """Stop the bookies, all at once, then ZooKeeper; idempotent."""
        bookies, self.bookies = self.bookies, {}
        for child in bookies.values():
            child.signal(signal.SIGTERM)
        for child in bookies.values():
            child.stop(_STOP_GRACE_S)
        if self.zookeeper is not None:
            self.zookeeper.close()


@click.command()
@click.argument("count", type=click.IntRange(1, BOOKIES_MAX), default=3, metavar="[N]")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep everything in this directory.  [default: a temporary one, removed at the end]",
)
@click.option(
    "--tick-ms",
    type=click.IntRange(100, 10_000),
    default=TICK_MS,
    show_default=True,
    help="ZooKeeper's unit of time: its sessions last two of them at least.",
)
@json_option
def local(output: Output, count: int, data: Path | None, tick_ms: int) -> None:
    """Run ZooKeeper and N bookies (3 unless said) until Ctrl-C.

    ZooKeeper listens on 2181 and the bookies on 3181 and up where those ports are free, else on
    others; on loopback only.
    """
    with (
        _terminates_like_interrupt(),
        _directory(data) as directory,
        contextlib.closing(LocalCluster(directory, _plan(directory, count), tick_ms)) as running,
    ):
        if is_fetch_needed():
            with output.progress("Maven fetches ZooKeeper's jars: 8 MB, once"):
                fetch()
        with output.progress(f"starting ZooKeeper and {count} bookies"):
            running.start()
        _explain(output, running, is_kept=data is not None)
        try:
            _watch(output, running)
        except KeyboardInterrupt:
            output.say("stopping")


def _watch(output: Output, running: LocalCluster) -> None:
    """Say which process ends by itself, until Ctrl-C."""
    assert running.zookeeper is not None
    is_told = False
    while True:
        time.sleep(_LOOK_EVERY_S)
        for bookie_id, child in running.ended().items():
            output.warn(
                f"bookie {bookie_id} ended, exit code {child.exit_code()} (log: {child.log}); "
                f"start it again:\n  bookie serve --zookeeper {running.cluster.zookeeper} "
                f"--data {child.log.with_suffix('')} --port {bookie_id.rpartition(':')[2]}"
            )
        if not running.zookeeper.is_running and not is_told:
            output.warn(f"ZooKeeper ended (log: {running.zookeeper.directory}/zookeeper.log)")
            is_told = True


def _explain(output: Output, running: LocalCluster, *, is_kept: bool) -> None:
    cluster, zookeeper = running.cluster, running.zookeeper
    assert zookeeper is not None
    if output.is_json:
        output.record(
            {
                "zookeeper": cluster.zookeeper,
                "zookeeper_pid": zookeeper.pid,
                "zookeeper_command": zookeeper.command,
                "root": cluster.root,
                "metadata_service_uri": cluster.uri,
                "bookies": [
                    {"bookie_id": name, "pid": child.pid, "command": child.command}
                    for name, child in running.bookies.items()
                ],
                "data": str(running.directory),
            }
        )
        return
    kept = "" if is_kept else "  (removed at the end; --data DIR keeps it)"
    bookies = [f"{name} (pid {child.pid})" for name, child in running.bookies.items()]
    output.say(f"ZooKeeper  {cluster.zookeeper} (pid {zookeeper.pid})")
    output.say(f"bookies    {', '.join(bookies)}")
    output.say(f"data       {running.directory}{kept}")
    output.say("")
    if running.plan.zookeeper_port != _ZOOKEEPER_PORT:
        output.say(Text(f"  export BOOKIE_ZOOKEEPER={cluster.zookeeper}", style="bold"))
    quorums = ""
    if len(bookies) < 3:
        size = len(bookies)
        quorums = f" --ensemble {size} --write-quorum {size} --ack-quorum {size}"
    for line in (f"bookie simpletest{quorums}", "bookie bookies info", "bookie ledger list"):
        output.say(Text(f"  {line}", style="bold"))
    output.say("")
    output.say(f"Apache BookKeeper's client and shell take metadataServiceUri={cluster.uri}")
    output.say("Ctrl-C stops everything.")


@contextlib.contextmanager
def _directory(data: Path | None) -> Generator[Path]:
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
        found = sorted(path.name for path in data.iterdir())
        if found and _PLAN_FILE not in found:
            raise BookieStartError(
                f"{data}: expected an empty directory or that of an earlier run, found "
                f"{found[0]!r} in it; name another one with --data"
            )
        yield data.resolve()
        return
    temporary = Path(tempfile.mkdtemp(prefix="bookie-local-"))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _plan(directory: Path, count: int) -> Plan:
    """Return the ports that the directory had before, and others for bookies that are new."""
    file = directory / _PLAN_FILE
    plan = Plan(_free(_ZOOKEEPER_PORT, ()), [])
    if file.exists():
        try:
            plan = Plan(**json.loads(file.read_text()))
        except (ValueError, TypeError) as error:
            raise CorruptFileError(
                f"{file}: expected the ports of an earlier run ({error}); restore it, or name "
                "another directory with --data"
            ) from error
    while len(plan.bookie_ports) < count:
        wished = _BOOKIE_PORT + len(plan.bookie_ports)
        plan.bookie_ports.append(_free(wished, (plan.zookeeper_port, *plan.bookie_ports)))
    file.write_text(json.dumps(asdict(plan)))
    return Plan(plan.zookeeper_port, plan.bookie_ports[:count])


def _free(wished: int, taken: tuple[int, ...]) -> int:
    with socket.socket() as probe:
        # As a server would: what only waits for late packets is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wished))
        except OSError:
            pass
        else:
            return wished
    while (port := free_port()) in taken:
        pass
    return port


@contextlib.contextmanager
def _terminates_like_interrupt() -> Generator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that no process is left."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
