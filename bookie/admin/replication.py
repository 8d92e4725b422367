"""`bookie autorecovery` and `bookie replication …`: run auditor and worker, look at their work."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncGenerator

import click

from bookie.admin.ids import BOOKIE_ID
from bookie.admin.output import Output
from bookie.admin.serve import log_to_stderr, setting_of
from bookie.admin.world import SESSION_TIMEOUT_S, Cluster, client_options, cluster_options, run
from bookie.autorecovery.election import current_auditor
from bookie.autorecovery.formats import Task
from bookie.autorecovery.service import AutoRecovery
from bookie.autorecovery.tasks import TaskStore
from bookie.config import AutoRecoveryConfig
from bookie.errors import CorruptFileError, IllegalOperationError
from bookie.ledger.types import BookieId
from bookie.lifecycle.operations import Operations
from bookie.metadata.interfaces import VersionedStore
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_rng import OsRng

_DELAY_S_MAX = 10 * 365 * 86400


@click.command()
@click.option(
    "--name",
    metavar="NAME",
    help="What votes, locks and statuses call it.  [default: host name and process id]",
)
@click.option(
    "--session-timeout",
    "session_timeout_s",
    type=click.FloatRange(0.1, 600),
    default=SESSION_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="Another auditor takes over after a silence of so long.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of AutoRecovery (docs/reference/bookie-config.md); may be repeated.",
)
@client_options
def autorecovery(
    cluster: Cluster,
    output: Output,
    name: str | None,
    settings: tuple[str, ...],
    session_timeout_s: float,
) -> None:
    """Run an auditor and a replication worker, without a bookie, until SIGTERM or Ctrl-C.

    All auditors of a cluster elect one. The worker copies to bookies drawn by the placement policy;
    one beside a bookie (`bookie serve --autorecovery`) copies to that.
    """
    config = AutoRecoveryConfig(**dict(setting_of(text, AutoRecoveryConfig) for text in settings))  # type: ignore[arg-type]
    log_to_stderr()
    run(_run(cluster, output, name or f"{socket.gethostname()}:{os.getpid()}", config,
             session_timeout_s))  # fmt: skip


async def _run(
    cluster: Cluster,
    output: Output,
    name: str,
    config: AutoRecoveryConfig,
    session_timeout_s: float,
) -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(cluster.session(session_timeout_s))
        service = await AutoRecovery.start(
            store, cluster.root, name, clock=OsClock(), rng=OsRng(), config=config, tls=cluster.tls
        )
        stack.push_async_callback(service.close)
        output.record({"name": name}, f"AutoRecovery {name} is at work for {cluster.uri}")
        await told.wait()


@click.group()
def replication() -> None:
    """Look at under-replicated ledgers, the auditor and its settings; switch AutoRecovery."""


@contextlib.asynccontextmanager
async def _tasks(cluster: Cluster) -> AsyncGenerator[tuple[VersionedStore, TaskStore]]:
    async with cluster.existing() as store:
        yield store, TaskStore(store, cluster.root)


@replication.command("under-replicated")
@click.option(
    "--missing",
    type=BOOKIE_ID,
    metavar="BOOKIE",
    help="Only ledgers of which this bookie's is missing.",
)
@click.option(
    "--not-missing",
    type=BOOKIE_ID,
    metavar="BOOKIE",
    help="Only ledgers of which this one's is not.",
)
@cluster_options
def under_replicated(
    cluster: Cluster, output: Output, missing: BookieId | None, not_missing: BookieId | None
) -> None:
    """List the ledgers that wait for replication, and why those wait that could not be done."""
    run(_under_replicated(cluster, output, missing, not_missing))


async def _under_replicated(
    cluster: Cluster, output: Output, missing: BookieId | None, not_missing: BookieId | None
) -> None:
    records: list[dict[str, object]] = []
    async with _tasks(cluster) as (store, tasks):
        unseen = dict.fromkeys(one for one in (missing, not_missing) if one is not None)
        statuses = {status.ledger_id: status for status in await tasks.statuses()}
        locked = set(await tasks.locked())
        async for ledger_id in tasks.ledger_ids():
            damage = None
            try:
                found = await tasks.read(ledger_id)
            except CorruptFileError as error:
                found, damage = (Task((), None), 0), str(error)
            if found is None:
                continue  # done since it was listed
            task, _ = found
            for bookie_id in task.missing:
                unseen.pop(bookie_id, None)
            if missing is not None and missing not in task.missing:
                continue
            if not_missing is not None and not_missing in task.missing:
                continue
            status = statuses.get(ledger_id)
            records.append(
                {
                    "ledger_id": ledger_id,
                    "missing": list(task.missing),
                    "since_ms": task.ctime_ms,
                    "is_locked": ledger_id in locked,
                    "failures": status.failure_count if status is not None else 0,
                    "is_loss": status.is_loss if status is not None else False,
                    "reason": damage or (status.reason if status is not None else None),
                }
            )
        await Operations(store, cluster.root, OsRng(), OsClock()).expect_known(unseen)
    columns = ("ledger_id", "missing", "is_locked", "failures", "is_loss", "reason")
    output.records(records, columns, "no ledger waits for replication")


@replication.command()
@cluster_options
def auditor(cluster: Cluster, output: Output) -> None:
    """Say which process is the auditor."""
    name = run(_auditor(cluster))
    output.record({"auditor": name}, name or "there is no auditor: no AutoRecovery is running")


async def _auditor(cluster: Cluster) -> str | None:
    async with _tasks(cluster) as (store, tasks):
        return await current_auditor(store, tasks)


@replication.command()
@cluster_options
def audit(cluster: Cluster, output: Output) -> None:
    """Let the auditor look for ledgers of lost bookies now."""
    name = run(_audit(cluster))
    output.record({"auditor": name}, f"{name} was told to look")


async def _audit(cluster: Cluster) -> str:
    async with _tasks(cluster) as (store, tasks):
        name = await current_auditor(store, tasks)
        if name is None:
            raise IllegalOperationError(
                "expected an auditor, found none; start `bookie autorecovery`, or bookies with "
                "--autorecovery"
            )
        await tasks.request_audit()
        return name


@replication.command()
@click.argument("seconds", type=click.IntRange(0, _DELAY_S_MAX), required=False)
@cluster_options
def delay(cluster: Cluster, output: Output, seconds: int | None) -> None:
    """Show how long one lost bookie is waited for before its ledgers are copied; or set it."""
    found = run(_delay(cluster, seconds))
    output.record({"delay_s": found}, f"one lost bookie is waited for {found} s")


async def _delay(cluster: Cluster, seconds: int | None) -> int:
    async with _tasks(cluster) as (_, tasks):
        if seconds is not None:
            await tasks.set_lost_bookie_delay(seconds)
        return await tasks.lost_bookie_delay_s()


@replication.command()
@cluster_options
def enable(cluster: Cluster, output: Output) -> None:
    """Let auditors publish and workers replicate again."""
    run(_switch(cluster, is_on=True))
    output.record({"is_enabled": True}, "AutoRecovery is on")


@replication.command()
@cluster_options
def disable(cluster: Cluster, output: Output) -> None:
    """Stop publishing and replicating in the whole cluster, until `enable`."""
    run(_switch(cluster, is_on=False))
    output.record({"is_enabled": False}, "AutoRecovery is off")


async def _switch(cluster: Cluster, *, is_on: bool) -> None:
    async with _tasks(cluster) as (_, tasks):
        await (tasks.enable() if is_on else tasks.disable())


@replication.command()
@cluster_options
def status(cluster: Cluster, output: Output) -> None:
    """Say whether AutoRecovery is on, who audits, and how many ledgers wait."""
    output.record(run(_status(cluster)))


async def _status(cluster: Cluster) -> dict[str, object]:
    async with _tasks(cluster) as (store, tasks):
        waiting = [ledger_id async for ledger_id in tasks.ledger_ids()]
        statuses = await tasks.statuses()
        return {
            "is_enabled": await tasks.is_enabled(),
            "auditor": await current_auditor(store, tasks),
            "delay_s": await tasks.lost_bookie_delay_s(),
            "under_replicated": len(waiting),
            "locked": len(await tasks.locked()),
            "failing": len(statuses),
            "lost": sum(found.is_loss for found in statuses),
        }
