"""`bookie bookies recover` and `decommission`: copy what bookies have, and forget a stopped one."""

import asyncio
import os
import signal
import socket
from datetime import timedelta
from functools import partial
from math import ceil

import click

from bookie.admin.bookies import bookies
from bookie.admin.ids import BOOKIE_ID, LEDGER_ID, distinct
from bookie.admin.output import Output, bytes_text, confirm
from bookie.admin.world import Cluster, Seconds, client_options, cluster_options
from bookie.autorecovery.manual import Named, ledgers_naming, named, recover_ledgers
from bookie.autorecovery.manual import decommission as decommission_bookie
from bookie.autorecovery.operations import ReplicationOperations
from bookie.autorecovery.repair import Outcome, Repairer, Result
from bookie.autorecovery.tasks import TaskStore
from bookie.config import AutoRecoveryConfig
from bookie.errors import IllegalOperationError, LedgersLeftError
from bookie.ledger.types import BookieId
from bookie.lifecycle.operations import Operations
from bookie.metadata.cookies import CookieStore
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_executors import run
from bookie.runtime.os_rng import OsRng

_ASSUMED_BYTES_PER_S = 50 * 1024 * 1024
"""Of an estimate without --rate."""
_COLUMNS = ("ledger_id", "result", "entries", "bytes", "reason")


@bookies.command()
@click.argument(
    "bookie_ids", nargs=-1, required=True, type=BOOKIE_ID, callback=distinct,
    metavar="BOOKIE...",
)  # fmt: skip
@click.option(
    "--to",
    "target",
    type=BOOKIE_ID,
    metavar="BOOKIE",
    help="Copy everything there.  [default: a bookie drawn for each segment]",
)
@click.option(
    "--ledger", "ledger_ids", type=LEDGER_ID, multiple=True, callback=distinct, metavar="LEDGER",
    help="Only this ledger; may be repeated.",
)  # fmt: skip
@click.option("--dry-run", "is_dry", is_flag=True, help="Say what would be copied; change nothing.")
@click.option(
    "--skip-open", "is_skipping_open", is_flag=True,
    help="Leave the last segment of ledgers that are not closed, instead of fencing them.",
)  # fmt: skip
@click.option(
    "--rate", "bytes_per_s", type=click.IntRange(1), metavar="BYTES",
    help="Copy at most so much a second.",
)  # fmt: skip
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@client_options
def recover(
    cluster: Cluster,
    output: Output,
    bookie_ids: tuple[BookieId, ...],
    target: BookieId | None,
    ledger_ids: tuple[int, ...],
    bytes_per_s: int | None,
    *,
    is_dry: bool,
    is_skipping_open: bool,
    is_sure: bool,
) -> None:
    """Copy all that ledgers have on these bookies to others, running or not.

    A ledger that is written to is fenced and closed first, unless --skip-open. It may be stopped
    and run again: ledgers that are done are not copied again. Needs no AutoRecovery, and may run
    beside it: a ledger that a worker or a bookie's collector has locked is tried again for a while,
    then listed, with exit code 1.
    """
    confirm(f"Copy everything from {', '.join(bookie_ids)} to others?", is_sure=is_sure or is_dry)
    if target in bookie_ids:
        raise click.UsageError(f"--to: expected another bookie, found {target}")
    config = AutoRecoveryConfig(copy_bytes_per_s=bytes_per_s)

    async def main() -> None:
        # SIGTERM is a Ctrl-C: locks are given back, and what is left is said.
        stop = partial(signal.raise_signal, signal.SIGINT)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        await _recover(
            cluster, output, bookie_ids, target, ledger_ids, config,
            is_dry=is_dry, will_fence=not is_skipping_open,
        )  # fmt: skip

    run(main())


async def _recover(
    cluster: Cluster,
    output: Output,
    sources: tuple[BookieId, ...],
    target: BookieId | None,
    ledger_ids: tuple[int, ...],
    config: AutoRecoveryConfig,
    *,
    is_dry: bool,
    will_fence: bool,
) -> None:
    async with cluster.existing() as store, cluster.client_of(store) as client:
        await Operations(store, cluster.root, OsRng(), OsClock()).expect_known(sources)
        if target is not None and target not in client.bookies.writable:
            raise IllegalOperationError(
                f"--to {target}: expected a writable bookie, found it "
                f"{client.bookies.mode_of(target).value}; writable are "
                f"{', '.join(client.bookies.writable) or 'none'}"
            )
        unreadable: dict[int, str] = {}
        found = [
            named(metadata, sources)
            async for metadata in ledgers_naming(
                client.services.ledgers, sources, ledger_ids, unreadable=unreadable
            )
        ]
        bytes_per_s = config.copy_bytes_per_s or _ASSUMED_BYTES_PER_S
        if is_dry:
            _plan(output, found, bytes_per_s, will_fence=will_fence)
            for reason in unreadable.values():
                output.warn(f"{reason}: it cannot be read, and may name them")
            return
        if found:
            output.say_aside(_estimate(found, bytes_per_s))

        async def leaving() -> frozenset[BookieId]:
            return frozenset(sources)

        repairer = Repairer(client, OsClock(), config, local=target, leaving=leaving)
        await _copy(
            output, TaskStore(store, cluster.root), repairer, sources, found, unreadable,
            will_fence=will_fence,
        )  # fmt: skip


def _plan(output: Output, found: list[Named], bytes_per_s: int, *, will_fence: bool) -> None:
    def row(one: Named) -> dict[str, object]:
        count = one.byte_count
        record: dict[str, object] = {
            "ledger_id": one.metadata.ledger_id,
            "state": one.metadata.state.name,
            "entries": one.entry_count,
            "bytes": count,
            "seconds": None if count is None else round(count / bytes_per_s, 3),
            "is_fenced_first": one.is_open_there and will_fence,
        }
        if not output.is_json and count is not None:
            record["bytes"] = bytes_text(count)
        return record

    columns = ("ledger_id", "state", "entries", "bytes", "is_fenced_first")
    output.records(map(row, found), columns, "no ledger names them")
    if found:
        output.say(_estimate(found, bytes_per_s))


def _estimate(found: list[Named], bytes_per_s: int) -> str:
    """Say how much there is to copy; bytes by the average entry, time by the rate alone."""
    byte_count = sum(one.byte_count or 0 for one in found)
    unknown = sum(one.byte_count is None for one in found)
    return (
        f"{len(found)} ledgers, {sum(one.entry_count for one in found)} entries, about "
        f"{bytes_text(byte_count)}: {timedelta(seconds=ceil(byte_count / bytes_per_s))} at "
        f"{bytes_text(bytes_per_s)}/s"
        + (f"; {unknown} of them are open, of unknown size" if unknown else "")
    )


async def _copy(
    output: Output,
    tasks: TaskStore,
    repairer: Repairer,
    sources: tuple[BookieId, ...],
    found: list[Named],
    unreadable: dict[int, str],
    *,
    will_fence: bool,
) -> None:
    owner = f"bookies recover, {socket.gethostname()}:{os.getpid()}"
    left: dict[int, int] = {one.metadata.ledger_id: one.byte_count or 0 for one in found}
    bad = [_row(ledger_id, "unreadable", why) for ledger_id, why in unreadable.items()]
    entries = copied = 0
    try:
        # By the estimate: so the time that is left is that of the bytes that are left.
        with output.progress("bytes", total := sum(left.values())) as advance:
            async for ledger_id, outcome in recover_ledgers(
                tasks, repairer, list(left), owner, will_fence=will_fence
            ):
                if outcome is None:
                    holder = (await tasks.holders([ledger_id])).get(ledger_id, "another process")
                    bad.append(_row(ledger_id, "locked", f"locked by {holder}"))
                else:
                    entries += outcome.entry_count
                    copied += outcome.byte_count
                    if outcome.result in (Result.WHOLE, Result.GONE):
                        del left[ledger_id]
                    else:
                        result = "loss" if outcome.is_loss else outcome.result.value
                        reason = outcome.reason or "its last segment is open, and was left"
                        bad.append(_row(ledger_id, result, reason, outcome))
                advance.to(total - sum(left.values()))
    except BaseException:
        output.warn(
            f"{len(found) - len(left)} of {len(found)} ledgers are done; {len(left)} are left, "
            f"about {bytes_text(sum(left.values()))}, the first is {next(iter(left), 0)}. Run the "
            "same command again: those that are done are not copied again"
        )
        raise
    if bad:
        output.records(bad, _COLUMNS, "")
    output.record(
        {"ledgers": len(found) - len(left), "failed": len(bad), "entries": entries,
         "bytes": copied},
        f"{len(found) - len(left)} ledgers are whole without {', '.join(sources)}: "
        f"{entries} entries, {bytes_text(copied)} copied",
    )  # fmt: skip
    if bad:
        raise LedgersLeftError(
            f"{len(bad)} ledgers still need {', '.join(sources)}; the reasons are above. Run it "
            "again when they are mended"
        )


def _row(
    ledger_id: int, result: str, reason: str, outcome: Outcome | None = None
) -> dict[str, object]:
    return {
        "ledger_id": ledger_id,
        "result": result,
        "entries": outcome.entry_count if outcome is not None else 0,
        "bytes": outcome.byte_count if outcome is not None else 0,
        "reason": reason,
    }


@bookies.command()
@click.argument("bookie_id", type=BOOKIE_ID)
@click.option(
    "--timeout", "timeout_s", type=Seconds(0), default=3600.0, show_default=True,
    metavar="SECONDS", help="Give up after so long; it may be run again.",
)  # fmt: skip
@cluster_options
def decommission(cluster: Cluster, output: Output, bookie_id: BookieId, timeout_s: float) -> None:
    """Let AutoRecovery copy what a stopped bookie has, wait for it, and forget the bookie.

    What cannot be copied is waited for as well: `bookie replication under-replicated` shows it,
    with the reason. It may be stopped and run again. For a bookie without a drain; `bookie bookies
    remove` forgets one that is Drained.
    """
    run(_decommission(cluster, output, bookie_id, timeout_s))
    output.record({"decommissioned": bookie_id}, f"no ledger names {bookie_id}: it is forgotten")


async def _decommission(
    cluster: Cluster, output: Output, bookie_id: BookieId, timeout_s: float
) -> None:
    total = 0
    async with cluster.existing() as store:
        with output.progress(f"waiting for the ledgers of {bookie_id}") as advance:

            def on_left(count: int) -> None:
                nonlocal total
                total = max(total, count)
                advance.to(total - count, total)

            asked = Operations(store, cluster.root, OsRng(), OsClock())
            await decommission_bookie(
                asked,
                ReplicationOperations(store, cluster.root, asked),
                CookieStore(store, cluster.root),
                bookie_id,
                OsClock(),
                timeout_s,
                on_left,
                lambda warning: output.warn(f"warning: {warning}"),
            )
