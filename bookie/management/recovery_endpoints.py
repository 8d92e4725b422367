"""The endpoints of AutoRecovery and of recovery by hand; BookKeeper's, and bad ledgers and losses.

Recovery and decommission take long: they go on in the background, and a GET of the same path says
how far they are. After the end of this process they may be begun again.
"""

from functools import partial

from bookie.autorecovery.manual import decommission, ledgers_naming, recover_ledgers
from bookie.autorecovery.operations import ReplicationOperations
from bookie.autorecovery.repair import Repairer, Result
from bookie.config import AutoRecoveryConfig
from bookie.errors import (
    IllegalOperationError,
    IncorrectParameterError,
    LedgersLeftError,
    NoSuchBookieError,
)
from bookie.ledger.types import BookieId, parse_bookie_id
from bookie.lifecycle.operations import Operations
from bookie.management.access import Role
from bookie.management.cluster import ClusterOperations
from bookie.management.long_tasks import Json, LongTasks
from bookie.management.routing import Argument, Call, Endpoint, Kind
from bookie.metadata.cookies import CookieStore

AUTORECOVERY = "/api/v1/autorecovery"
PAGE_LEDGERS = 1000
_DECOMMISSION_S_MAX = 86400.0


class RecoveryEndpoints:
    """See the module."""

    def __init__(
        self,
        cluster: ClusterOperations,
        lifecycle: Operations,
        replication: ReplicationOperations,
        long_tasks: LongTasks,
        name: str,
    ) -> None:
        """name: of this process, in the locks of ledgers that it recovers."""
        self._cluster = cluster
        self._lifecycle = lifecycle
        self._replication = replication
        self._long_tasks = long_tasks
        self._name = name

    def table(self) -> tuple[Endpoint, ...]:
        read, admin = Role.READ, Role.ADMIN
        missing = (
            Argument("missingreplica", Kind.TEXT, "Only those that miss this bookie's copy."),
            Argument("excludingmissingreplica", Kind.TEXT, "Only those that do not miss it."),
        )
        pages = (
            Argument("after", Kind.NUMBER, "Only ids above this one."),
            Argument("limit", Kind.NUMBER, "At most so many; 1,000 if not said, and at most."),
        )
        source = Argument("bookie_src", Kind.TEXT, "The bookie that is gone.", is_required=True)
        return (
            Endpoint("GET", f"{AUTORECOVERY}/status", read,
                     "Whether AutoRecovery is on, who audits, how much waits.", self._status),
            Endpoint("PUT", f"{AUTORECOVERY}/status", admin,
                     "Switch AutoRecovery on or off in the whole cluster.", self._switch,
                     query=(Argument("enabled", Kind.FLAG, "On, or off.", is_required=True),)),
            Endpoint("GET", f"{AUTORECOVERY}/list_under_replicated_ledger", read,
                     "The ids of the ledgers that wait for replication.", self._ids,
                     query=(*missing, *pages)),
            Endpoint("GET", f"{AUTORECOVERY}/under_replicated", read,
                     "The ledgers that wait for replication, and what is known of each.",
                     self._under_replicated, query=(*missing, *pages)),
            Endpoint("GET", f"{AUTORECOVERY}/bad_ledgers", read,
                     "The ledgers that workers could not replicate, and why.",
                     partial(self._bad_ledgers, only_losses=False)),
            Endpoint("GET", f"{AUTORECOVERY}/losses", read,
                     "The ledgers with an entry that no bookie which answers has.",
                     partial(self._bad_ledgers, only_losses=True)),
            Endpoint("GET", f"{AUTORECOVERY}/who_is_auditor", read, "Which process is the auditor.",
                     self._auditor),
            Endpoint("PUT", f"{AUTORECOVERY}/trigger_audit", admin,
                     "Let the auditor look for ledgers of lost bookies now.", self._audit),
            Endpoint("GET", f"{AUTORECOVERY}/lost_bookie_recovery_delay", read,
                     "How long one lost bookie is waited for.", self._delay),
            Endpoint("PUT", f"{AUTORECOVERY}/lost_bookie_recovery_delay", admin,
                     "Set how long one lost bookie is waited for.", self._set_delay,
                     body=(Argument("delay_seconds", Kind.NUMBER, "So long.", is_required=True),)),
            Endpoint("PUT", f"{AUTORECOVERY}/bookie", admin,
                     "Copy what these bookies have to others, in the background.", self._recover,
                     body=(Argument("bookie_src", Kind.TEXTS, "The bookies.", is_required=True),
                           Argument("bookie_dest", Kind.TEXTS, "One bookie to copy to."),
                           Argument("delete_cookie", Kind.FLAG,
                                    "Forget them at the end, if no ledger names them."))),
            Endpoint("GET", f"{AUTORECOVERY}/bookie", read, "How far that is.",
                     partial(self._last, name="recovery")),
            Endpoint("DELETE", f"{AUTORECOVERY}/bookie", admin,
                     "Stop copying; what was copied stays, and it may be begun again.",
                     partial(self._cancel, name="recovery")),
            Endpoint("PUT", f"{AUTORECOVERY}/decommission", admin,
                     "Let AutoRecovery copy what a stopped bookie has, then forget it.",
                     self._decommission, body=(source,)),
            Endpoint("GET", f"{AUTORECOVERY}/decommission", read, "How far that is.",
                     partial(self._last, name="decommission")),
            Endpoint("DELETE", f"{AUTORECOVERY}/decommission", admin,
                     "Wait no longer; AutoRecovery goes on, and nothing is forgotten.",
                     partial(self._cancel, name="decommission")),
        )  # fmt: skip

    async def _status(self, call: Call) -> object:
        found = await self._replication.status()
        return {"enabled": found["is_enabled"]} | found

    async def _switch(self, call: Call) -> object:
        await self._replication.switch(is_on=call.query["enabled"])
        return {"enabled": await self._replication.tasks.is_enabled()}

    async def _under_replicated(self, call: Call) -> list[Json]:
        limit = call.query.get("limit", PAGE_LEDGERS)
        if not 1 <= limit <= PAGE_LEDGERS:
            raise IncorrectParameterError(
                f"parameter limit: expected 1 to {PAGE_LEDGERS}, found {limit}; ask for the rest "
                "with after=LAST_ID"
            )
        return await self._replication.under_replicated(
            _bookie_id(call, "missingreplica"),
            _bookie_id(call, "excludingmissingreplica"),
            after=call.query.get("after", -1),
            limit=limit,
        )

    async def _ids(self, call: Call) -> object:
        return [row["ledger_id"] for row in await self._under_replicated(call)]

    async def _bad_ledgers(self, call: Call, *, only_losses: bool) -> object:
        return await self._replication.bad_ledgers(only_losses=only_losses)

    async def _auditor(self, call: Call) -> object:
        name = await self._replication.auditor()
        if name is None:
            raise NoSuchBookieError(
                "expected an auditor, found none; start `bookie autorecovery`, or bookies with "
                "--autorecovery"
            )
        return {"Auditor": name}

    async def _audit(self, call: Call) -> object:
        return {"auditor": await self._replication.audit()}

    async def _delay(self, call: Call) -> object:
        return {"delay_seconds": await self._replication.tasks.lost_bookie_delay_s()}

    async def _set_delay(self, call: Call) -> object:
        await self._replication.set_delay(call.body["delay_seconds"])
        return await self._delay(call)

    # --- what takes long --------------------------------------------------------------------------

    async def _last(self, call: Call, *, name: str) -> object:
        return self._long_tasks.last(name)

    async def _cancel(self, call: Call, *, name: str) -> object:
        return await self._long_tasks.cancel(name)

    async def _recover(self, call: Call) -> object:
        sources = [parse_bookie_id(text) for text in call.body["bookie_src"]]
        targets = [parse_bookie_id(text) for text in call.body.get("bookie_dest", [])]
        if not sources or len(targets) > 1 or set(targets) & set(sources):
            raise IncorrectParameterError(
                "body: expected bookie_src with bookies, and in bookie_dest at most one other, "
                f"found {len(sources)} and {len(targets)}"
            )
        await self._lifecycle.expect_known(sources)
        forgets = call.body.get("delete_cookie", False)
        if forgets:
            for bookie_id in sources:
                await self._lifecycle.expect_forgettable(bookie_id)

        async def work(record: Json) -> None:
            await self._copy(sources, targets[0] if targets else None, record)
            for bookie_id in sources if forgets else ():
                await self._forget(bookie_id)

        return self._long_tasks.begin("recovery", work, sources)

    async def _copy(self, sources: list[BookieId], target: BookieId | None, record: Json) -> None:
        async with self._cluster.client() as client:
            if target is not None and target not in client.bookies.writable:
                raise IllegalOperationError(
                    f"bookie_dest {target}: expected a writable bookie, found it not"
                )
            ledgers = client.services.ledgers
            unreadable: dict[int, str] = {}
            found = [
                one.ledger_id
                async for one in ledgers_naming(ledgers, sources, unreadable=unreadable)
            ]
            record |= {"ledgers": len(found), "ledgers_done": 0, "entries": 0, "bytes": 0}
            bad: list[Json] = [
                {"ledger_id": ledger_id, "reason": reason}
                for ledger_id, reason in unreadable.items()
            ]

            async def leaving() -> frozenset[BookieId]:
                return frozenset(sources)

            repairer = Repairer(
                client, self._cluster.clock, AutoRecoveryConfig(), local=target, leaving=leaving
            )
            owner = f"recovery by {self._name}"  # not the name of a worker in this session
            async for ledger_id, outcome in recover_ledgers(
                self._replication.tasks, repairer, found, owner, will_fence=True
            ):
                record["ledgers_done"] += 1
                if outcome is not None:
                    record["entries"] += outcome.entry_count
                    record["bytes"] += outcome.byte_count
                    if outcome.result in (Result.WHOLE, Result.GONE):
                        continue
                reason = "another process has its lock" if outcome is None else outcome.reason
                bad.append({"ledger_id": ledger_id, "reason": reason})
        record["bad_ledgers"] = bad[:PAGE_LEDGERS]
        if bad:
            raise LedgersLeftError(
                f"{len(bad)} ledgers still need {', '.join(sources)}, or may; bad_ledgers has the "
                "reasons. Begin it again when they are mended"
            )

    async def _forget(self, bookie_id: BookieId) -> None:
        cookies = CookieStore(self._cluster.store, self._cluster.root)
        found = await cookies.read(bookie_id)
        await self._lifecycle.expect_forgettable(bookie_id)
        await self._lifecycle.expect_unnamed(bookie_id)
        if found is not None:
            await cookies.delete(bookie_id, found[1])

    async def _decommission(self, call: Call) -> object:
        bookie_id = parse_bookie_id(call.body["bookie_src"])
        await self._lifecycle.expect_known([bookie_id])
        await self._lifecycle.expect_forgettable(bookie_id)

        async def work(record: Json) -> None:
            def on_left(count: int) -> None:
                record["ledgers_left"] = count

            def on_warning(warning: str) -> None:
                record["warning"] = warning

            await decommission(
                self._lifecycle,
                self._replication,
                CookieStore(self._cluster.store, self._cluster.root),
                bookie_id,
                self._cluster.clock,
                _DECOMMISSION_S_MAX,
                on_left,
                on_warning,
            )

        return self._long_tasks.begin("decommission", work, [bookie_id])


def _bookie_id(call: Call, name: str) -> BookieId | None:
    text = call.query.get(name)
    return None if text is None else parse_bookie_id(text)
