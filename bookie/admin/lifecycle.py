"""`bookie bookies drain|cancel|status|mark-drained|remove|at-risk`: before a bookie may go."""

import getpass
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import click

from bookie.admin.ids import BOOKIE_ID, LEDGER_ID, distinct
from bookie.admin.output import Output, confirm
from bookie.admin.world import Cluster, client_context, cluster_options
from bookie.ledger.types import BookieId
from bookie.lifecycle.operations import Json, Operations
from bookie.management.turn_read_only import put_read_only, turn_read_only
from bookie.metadata.bookies import BookieDirectory
from bookie.metadata.service_info import Address
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_executors import run
from bookie.runtime.os_rng import OsRng

_COLUMNS = ("bookie_id", "lifecycle", "registered", "ledgers_left", "ledgers_total", "reason")
_LEDGER_COLUMNS = ("ledger_id", "problem", "cleared_count", "cleared_by")
_SHOWN_MAX = 20
EXIT_NOT_SAFE = 3
_RISKS = {
    "last_copy": "lose their last copy",
    "below_ack_quorum": "fall below the ack quorum",
    "under_replicated": "stay under-replicated",
}


@asynccontextmanager
async def operations(cluster: Cluster) -> AsyncGenerator[Operations]:
    """Open a session for the block."""
    async with cluster.existing() as store:
        yield Operations(store, cluster.root, OsRng(), OsClock())


def _do(cluster: Cluster, question: Callable[[Operations], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with operations(cluster) as asked:
            return await question(asked)

    return run(main())


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # an id without a name
        return socket.gethostname()


def _show(output: Output, status: Json) -> None:
    if output.is_json:
        output.record(status)
        return
    text = f"bookie {status['bookie_id']} is {status['lifecycle']} and {status['registered']}"
    if status["ledgers_left"] is not None:
        text += f"; {status['ledgers_left']} of {status['ledgers_total']} ledgers name it"
    if status["reason"]:
        text += f"; {status['reason']}"
    output.say(text)
    if status["warning"]:
        output.warn(f"warning: {status['warning']}")


@click.command()
@click.argument("bookie_id", type=BOOKIE_ID)
@click.option(
    "--no-fence",
    "is_fence_spared",
    is_flag=True,
    help="Leave open ledgers whose writer is silent; the drain fails if any are left.",
)
@click.option(
    "--http-trust",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="PEM file: ask a bookie's HTTP endpoint by TLS; its certificate is signed by these.  "
    "[default: in clear]",
)
@cluster_options
def drain(
    cluster: Cluster,
    output: Output,
    bookie_id: BookieId,
    http_trust: str | None,
    *,
    is_fence_spared: bool,
) -> None:
    """Empty a bookie: it takes no more writes, and its ledgers are copied to others.

    Works while its host is down, too. Drained is a promise that no ledger names it any more.
    After a failed drain this begins another. Ledgers that are open there are listed. A bookie that
    stays writable, as Apache's do, is made read-only by its HTTP endpoint, if it names one.
    """
    put = partial(put_read_only, tls=client_context(http_trust, None, "--http-trust"))
    run(_drain(cluster, output, bookie_id, put, may_fence=not is_fence_spared))


async def _drain(
    cluster: Cluster,
    output: Output,
    bookie_id: BookieId,
    put: Callable[[Address], Awaitable[None]],
    *,
    may_fence: bool,
) -> None:
    async with cluster.existing() as store:
        asked = Operations(store, cluster.root, OsRng(), OsClock())
        found = await asked.drain(bookie_id, _who(), may_fence=may_fence)
        found |= await asked.open_ledgers(bookie_id)
        _show(output, found)
        if found["open_ledgers"]:
            shown = ", ".join(map(str, found["open_ledgers"][:_SHOWN_MAX]))
            more = len(found["open_ledgers"]) + found["open_ledgers_not_shown"] - _SHOWN_MAX
            then = (
                "after `open_ledger_grace_s` it is fenced, and its writer can add no more"
                if may_fence
                else "it is left alone, and the drain fails because of it"
            )
            output.say_aside(
                f"open there: {shown}{f' and {more} more' if more > 0 else ''}. Our writers go on "
                f"with another bookie by themselves; where a writer does not, {then}"
            )
        directory = BookieDirectory(store, cluster.root)
        await directory.start()
        try:
            left = await turn_read_only(directory, bookie_id, put)
        finally:
            await directory.close()
        if left:
            output.warn(f"bookie {bookie_id}: {left}")


@click.command()
@click.argument("bookie_id", type=BOOKIE_ID)
@cluster_options
def cancel(cluster: Cluster, output: Output, bookie_id: BookieId) -> None:
    """End a drain, or what came of it: the bookie is Active again and takes writes."""
    _show(output, _do(cluster, lambda o: o.cancel(bookie_id)))


@click.command()
@click.argument("bookie_id", required=False, type=BOOKIE_ID)
@cluster_options
def status(cluster: Cluster, output: Output, bookie_id: BookieId | None) -> None:
    """Show the lifecycle of all bookies, or of one with the ledgers of its drain."""
    if bookie_id is None:
        records: list[Json] = _do(cluster, lambda o: o.statuses())
        output.records(records, _COLUMNS, "no bookie has a cookie")
        return
    found: Json = _do(cluster, lambda o: o.status(bookie_id))
    _show(output, found)
    if not output.is_json and found["ledgers"]:
        output.records(found["ledgers"], _LEDGER_COLUMNS, "")


@click.command("mark-drained")
@click.argument("bookie_id", type=BOOKIE_ID)
@click.option(
    "--accept-loss", "accepted", type=LEDGER_ID, multiple=True, callback=distinct,
    metavar="LEDGER",
    help="This ledger may go on naming it: what only it has is lost. May be repeated.",
)  # fmt: skip
@cluster_options
def mark_drained(
    cluster: Cluster, output: Output, bookie_id: BookieId, accepted: tuple[int, ...]
) -> None:
    """Let a failed drain count as done, if no ledger names the bookie but those accepted."""
    _show(output, _do(cluster, lambda o: o.mark_drained(bookie_id, _who(), accepted)))


@click.command()
@click.argument("bookie_id", type=BOOKIE_ID)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@cluster_options
def remove(cluster: Cluster, output: Output, bookie_id: BookieId, *, is_sure: bool) -> None:
    """Forget a stopped bookie that is Drained: cookie, state, all of it.

    All ledgers are looked through once more. The id may return later as a new, empty bookie.
    """
    confirm(f"Remove bookie {bookie_id}?", is_sure=is_sure)
    removed = _do(cluster, lambda o: o.remove(bookie_id))
    output.record(removed, f"removed bookie {bookie_id}")


@click.command("at-risk")
@click.argument(
    "bookie_ids", nargs=-1, required=True, type=BOOKIE_ID, callback=distinct,
    metavar="BOOKIE_ID...",
)  # fmt: skip
@cluster_options
def at_risk(cluster: Cluster, output: Output, bookie_ids: tuple[BookieId, ...]) -> None:
    """Say what the ledgers would lose if these bookies went now, all of them together.

    Bookies that have a cookie and are away count as lost already.

    Exit code 0: safe to leave now. 3: not safe (`is_safe` is false). 1: it could not be found out.
    """
    found: Json = _do(cluster, lambda o: o.at_risk(bookie_ids))
    if output.is_json:
        output.record(found)
    else:
        _show_risk(output, found)
    if not found["is_safe"]:
        sys.exit(EXIT_NOT_SAFE)


def _show_risk(output: Output, found: Json) -> None:
    going, lost = ", ".join(found["going"]) or "no other", ", ".join(found["lost"])
    output.say(
        f"{found['ledgers_scanned']} ledgers; if {going} went"
        f"{f', with {lost} lost already' if lost else ''}:"
    )
    records: list[dict[str, object]] = []
    for risk, text in _RISKS.items():
        after, before = found["after"][risk], found["before"][risk]
        records.append(
            {
                "what": text,
                **{name: after[name] for name in ("ledgers", "segments", "write_sets", "entries")},
                "ledgers_now": before["ledgers"],
                "first": ", ".join(map(str, after["ledger_ids"][:5])),
            }
        )
    columns = ("what", "ledgers", "segments", "write_sets", "entries", "ledgers_now", "first")
    output.records(records, columns, "")
    if found["ledgers_unreadable"]:
        output.warn(f"{found['ledgers_unreadable']} ledgers cannot be read and may name them")
    if found["segments_without_destination"]:
        output.warn(
            f"{found['segments_without_destination']} segments would find too few other bookies"
        )
    if found["warning"]:
        output.warn(f"warning: {found['warning']}")
    if found["copies_going"]:
        output.say(f"{found['copies_going']} copies of write sets would go")
    output.say("safe to leave now" if found["is_safe"] else "not safe to leave now: drain first")


COMMANDS = (drain, cancel, status, mark_drained, remove, at_risk)
