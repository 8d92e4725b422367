"""`herdpy cluster up`: a cluster on this machine, and what one sees of it."""

import asyncio
import contextlib
import json
import shlex
import shutil
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from bookie.errors import BookieError
from bookie.metadata.interfaces import VersionedStore
from bookie.runtime.os_executors import run, run_until_stopped
from herdpy.cli.cluster.local import LEDGERS, ROOT, LocalCluster, Program
from herdpy.cli.cluster.making import check_tablespace, create_tablespace, new_record
from herdpy.cli.cluster.view import as_tables, changes
from herdpy.cli.console import error_console, output_console
from herdpy.cli.settings import load_here
from herdpy.cluster.chain import Quorums
from herdpy.cluster.cluster_record import create_cluster
from herdpy.cluster.status import ClusterStatus, TablespaceStatus, read_status
from herdpy.errors import Error, OperationalError, ProgrammingError
from herdpy.node.addresses import dsn_of
from herdpy.node.place import ClusterPlace, as_herdpy_errors

_LOOK_S = 0.25
_PATIENCE_S = 0.2
"""For an answer of the store, while it is looked at again and again."""
_READY_LIMIT_S = 120.0
_QUORUMS = {1: Quorums(1, 1, 1), 2: Quorums(2, 2, 2)}
"""For so many bookies; Quorums() for more."""


def run_cluster(
    data: Path | None,
    *,
    node_count: int,
    bookie_count: int,
    tablespace: str,
    session_timeout_s: float,
    assignments: Sequence[str],
    is_json: bool,
) -> int:
    """Run a cluster until a signal, and return the exit code; herdpy.Error: it did not start."""
    check_tablespace(tablespace, ())
    load_here(None, assignments, {}, {})  # which the nodes would refuse one by one
    with _directory(data) as directory:
        cluster = LocalCluster(
            directory,
            node_count=node_count,
            bookie_count=bookie_count,
            session_timeout_s=session_timeout_s,
            assignments=assignments,
        )
        showing = _Showing(cluster, tablespace, is_kept=data is not None, is_json=is_json)
        try:
            with as_herdpy_errors("cluster up"):
                run(run_until_stopped(_live(cluster, showing, tablespace, bookie_count)))
            if not is_json:
                output_console().print("stopping")
        finally:
            cluster.close()
    return 0


async def _live(
    cluster: LocalCluster, showing: "_Showing", tablespace: str, bookie_count: int
) -> None:
    showing.say(f"starting ZooKeeper, {bookie_count} bookies, {len(cluster.node_ids)} nodes")
    await cluster.start_ledgers()
    quorums = _QUORUMS.get(bookie_count, Quorums())
    async with ClusterPlace(cluster.zookeeper, ROOT).session() as store:
        await _have_cluster(store, quorums)
        cluster.start_nodes()
        await _until_ready(cluster, _registered(store, cluster), "all nodes are registered")
        await _have_tablespace(cluster, store, tablespace)
        await _until_ready(cluster, _led(store, tablespace), "a leader serves")
        await showing.show(store)


async def _have_cluster(store: VersionedStore, quorums: Quorums) -> None:
    try:
        await create_cluster(store, ROOT, new_record(LEDGERS, quorums))
    except ProgrammingError as error:
        if error.sqlstate != "42710":
            raise


async def _have_tablespace(cluster: LocalCluster, store: VersionedStore, name: str) -> None:
    """Make it unless it is there; by a session that ends, as its maker is no leader."""
    status = await read_status(store, ROOT, patience_s=_READY_LIMIT_S)
    if name in [each.name for each in status.tablespaces]:
        return
    async with ClusterPlace(cluster.zookeeper, ROOT).session() as of_maker:
        await create_tablespace(of_maker, ROOT, name, cluster.node_ids)


async def _registered(store: VersionedStore, cluster: LocalCluster) -> None:
    while True:
        status = await read_status(store, ROOT, patience_s=_READY_LIMIT_S)
        if {node.id for node in status.nodes} >= set(cluster.node_ids):
            return
        await asyncio.sleep(_LOOK_S)


async def _led(store: VersionedStore, name: str) -> None:
    while True:
        status = await read_status(store, ROOT, patience_s=_READY_LIMIT_S)
        found = _tablespace(status, name)
        if found is not None and found.address is not None and await _answers(found.address):
            return
        await asyncio.sleep(_LOOK_S)


def _tablespace(status: ClusterStatus, name: str) -> TablespaceStatus | None:
    return next((each for each in status.tablespaces if each.name == name), None)


async def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True


async def _until_ready(cluster: LocalCluster, waiting: Any, what: str) -> None:
    """Wait for something, but not when a node ends meanwhile."""
    task = asyncio.ensure_future(waiting)
    try:
        async with asyncio.timeout(_READY_LIMIT_S):
            while not task.done():
                for program in cluster.ended():
                    raise _not_started(cluster, program)
                await asyncio.wait([task], timeout=_LOOK_S)
    except TimeoutError:
        raise OperationalError(
            f"cluster up: expected that {what}, which was not so in {_READY_LIMIT_S:g} s",
            sqlstate="57P03",
            hint=f"look at the logs in {cluster.directory}",
        ) from None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    task.result()


def _not_started(cluster: LocalCluster, program: Program) -> Error:
    tail = cluster.log_tail(program.name) if program.kind == "node" else ""
    return OperationalError(
        f"cluster up: {program.name} ended (log: {program.log})\n{tail}".rstrip(),
        sqlstate="58000",
    )


class _Showing:
    """What one sees: a live table on a terminal, lines of changes elsewhere, or one record."""

    def __init__(
        self, cluster: LocalCluster, tablespace: str, *, is_kept: bool, is_json: bool
    ) -> None:
        self._cluster = cluster
        self._tablespace = tablespace
        self._is_kept = is_kept
        self._is_json = is_json
        self._console: Console = output_console()
        self._errors: Console = error_console()

    def say(self, text: str) -> None:
        if not self._is_json:
            self._console.print(text)

    async def show(self, store: VersionedStore) -> None:
        """Say what is there, and then what changes, for ever."""
        status = await read_status(store, ROOT, patience_s=_READY_LIMIT_S)
        if self._is_json:
            click.echo(json.dumps(self._record(status)))
        else:
            self._explain()
        is_live = self._console.is_terminal and not self._is_json
        live = Live(console=self._console, auto_refresh=False) if is_live else None
        with live or contextlib.nullcontext():
            await self._follow(store, live)

    async def _follow(self, store: VersionedStore, live: Live | None) -> None:
        before: ClusterStatus | None = None
        is_away = False
        while True:
            for program in self._cluster.ended():
                self._warn(program)
            if self._is_json:  # what it prints is printed
                await asyncio.sleep(_LOOK_S)
                continue
            try:
                status = await read_status(store, ROOT, patience_s=_PATIENCE_S)
            except (BookieError, Error):
                if not is_away:
                    self.say("ZooKeeper does not answer")
                is_away = True
            else:
                is_away = False
                if live is not None:
                    live.update(as_tables(status), refresh=True)
                else:
                    for line in changes(before, status):
                        self._console.print(line)
                before = status
            await asyncio.sleep(_LOOK_S)

    def _warn(self, program: Program) -> None:
        console = self._errors if self._is_json else self._console
        console.print(
            f"{program.name} ended (pid {program.pid}, log: {program.log}); start it again:\n"
            f"  {shlex.join(program.command)}"
        )

    @property
    def _dsn(self) -> str:
        return dsn_of(self._cluster.zookeeper, ROOT, self._tablespace)

    def _record(self, status: ClusterStatus) -> dict[str, Any]:
        found = _tablespace(status, self._tablespace)
        return {
            "zookeeper": self._cluster.zookeeper,
            "root": ROOT,
            "tablespace": self._tablespace,
            "dsn": self._dsn,
            "leader": None if found is None else found.leader,
            "data": str(self._cluster.directory),
            "processes": [
                {
                    "name": each.name,
                    "kind": each.kind,
                    "pid": each.pid,
                    "address": each.address,
                    "command": list(each.command),
                    "log": str(each.log),
                }
                for each in self._cluster.programs.values()
            ],
        }

    def _explain(self) -> None:
        for each in self._cluster.programs.values():
            self._console.print(f"{each.name:<10} {each.address} (pid {each.pid})")
        kept = "" if self._is_kept else "  (removed at the end; --data DIR keeps it)"
        self._console.print(f"data       {self._cluster.directory}{kept}")
        self._console.print()
        self._console.print(Text(f"  {self._dsn}", style="bold"))
        for each in self._cluster.programs.values():
            if each.kind == "node":
                self._console.print(f"  herd://{each.address}  while {each.name} leads")
        self._console.print()
        self._console.print("kill a process (kill -9 PID) and look; Ctrl-C stops everything")
        self._console.print()


@contextlib.contextmanager
def _directory(data: Path | None) -> Generator[Path]:
    if data is not None:
        try:
            data.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OperationalError(
                f"--data: {data} cannot be made: {error.strerror or error}", sqlstate="58030"
            ) from None
        yield data.resolve()
        return
    temporary = Path(tempfile.mkdtemp(prefix="herdpy-cluster-"))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
