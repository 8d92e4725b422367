"""The endpoints of the whole cluster: ledgers, bookies, cookies, lifecycle, what is at risk."""

import base64

from bookie.autorecovery.operations import ReplicationOperations
from bookie.errors import IncorrectParameterError
from bookie.ledger.types import BookieId, parse_bookie_id
from bookie.lifecycle.operations import Operations
from bookie.management.access import Role
from bookie.management.cluster import ClusterOperations
from bookie.management.routing import Argument, Call, Endpoint, Kind
from bookie.management.turn_read_only import put_read_only, turn_read_only
from bookie.metadata.bookies import Mode

LEDGER = "/api/v1/ledger"
LIFECYCLE = "/api/v1/lifecycle"
_BOOKIES_MAX = 100
"""That one question may name."""
_MODES = {"rw": Mode.WRITABLE, "ro": Mode.READ_ONLY}


class ClusterEndpoints:
    """See the module."""

    def __init__(
        self, cluster: ClusterOperations, lifecycle: Operations, replication: ReplicationOperations
    ) -> None:
        self._cluster = cluster
        self._lifecycle = lifecycle
        self._replication = replication

    def table(self) -> tuple[Endpoint, ...]:
        read, admin = Role.READ, Role.ADMIN
        ledger_id = Argument("ledger_id", Kind.NUMBER, "The id of a ledger.", is_required=True)
        return (
            Endpoint("GET", f"{LEDGER}/list", read, "The ledgers by id, all or one page.",
                     self._ledgers,
                     query=(Argument("print_metadata", Kind.FLAG, "With a row for each."),
                            Argument("decode_meta", Kind.FLAG, "Counts for nothing."),
                            Argument("page", Kind.NUMBER, "From 1 on: 10,000 ids, or 100 rows."))),
            Endpoint("GET", f"{LEDGER}/metadata", read, "All metadata of a ledger, by its id.",
                     self._metadata, query=(ledger_id,)),
            Endpoint("GET", f"{LEDGER}/read", admin, "Entries of a ledger, as text or base64.",
                     self._read,
                     query=(ledger_id,
                            Argument("start_entry_id", Kind.NUMBER, "The first; 0 if not said."),
                            Argument("end_entry_id", Kind.NUMBER,
                                     "The last; the last confirmed one if not said."),
                            Argument("encoding", Kind.TEXT, "utf-8 (the default) or base64."))),
            Endpoint("DELETE", f"{LEDGER}/delete", admin, "Delete a ledger for ever.",
                     self._delete, query=(ledger_id,)),
            Endpoint("GET", "/api/v1/bookie/list_bookies", read, "The registered bookies.",
                     self._bookies,
                     query=(Argument("type", Kind.TEXT, "rw (the default) or ro."),
                            Argument("print_hostnames", Kind.FLAG, "With the host of each."))),
            Endpoint("GET", "/api/v1/bookie/list_bookie_info", read,
                     "The registered bookies and their space, each asked now.", self._infos),
            Endpoint("GET", "/api/v1/bookie/cluster_info", read, "The cluster in a few numbers.",
                     self._info),
            Endpoint("GET", "/api/v1/cookies", read, "The bookies that have a cookie.",
                     self._cookies),
            Endpoint("GET", LIFECYCLE, read, "The lifecycle of all bookies.", self._statuses),
            Endpoint("GET", f"{LIFECYCLE}/{{bookie_id}}", read,
                     "The lifecycle of one bookie and the ledgers of its drain.", self._status),
            Endpoint("PUT", f"{LIFECYCLE}/{{bookie_id}}", admin,
                     "Take a step: drain, cancel or mark-drained.", self._step,
                     body=(Argument("step", Kind.TEXT, "drain, cancel or mark-drained.",
                                    is_required=True),
                           Argument("may_fence", Kind.FLAG,
                                    "Of a drain: close open ledgers whose writer is silent."),
                           Argument("accept_loss", Kind.NUMBERS,
                                    "Of mark-drained: ledgers that may go on naming it."))),
            Endpoint("DELETE", f"{LIFECYCLE}/{{bookie_id}}", admin,
                     "Remove a stopped bookie that is Drained.", self._remove),
            Endpoint("GET", "/api/v1/at_risk", read,
                     "What the ledgers would lose if these bookies went.", self._at_risk,
                     query=(Argument("bookie", Kind.TEXTS, "The id of one that would go.",
                                     is_required=True),)),
        )  # fmt: skip

    # --- ledgers ----------------------------------------------------------------------------------

    async def _ledgers(self, call: Call) -> object:
        with_metadata = call.query.get("print_metadata", False)
        rows = await self._cluster.ledger_list(call.query.get("page"), with_metadata=with_metadata)
        return {str(ledger_id): row for ledger_id, row in rows.items()}

    async def _metadata(self, call: Call) -> object:
        ledger_id = call.query["ledger_id"]
        return {str(ledger_id): await self._cluster.ledger_metadata(ledger_id)}

    async def _read(self, call: Call) -> object:
        encoding = call.query.get("encoding", "utf-8")
        if encoding not in ("utf-8", "base64"):
            raise IncorrectParameterError(
                f"encoding: expected utf-8 or base64, found {encoding[:20]!r}"
            )
        found = await self._cluster.read_entries(
            call.query["ledger_id"],
            call.query.get("start_entry_id", 0),
            call.query.get("end_entry_id"),
        )

        def text(payload: bytes) -> str:
            is_text = encoding == "utf-8"
            return (
                payload.decode("utf-8", "replace")
                if is_text
                else base64.b64encode(payload).decode()
            )

        return {str(entry_id): text(payload) for entry_id, payload in found.items()}

    async def _delete(self, call: Call) -> object:
        return await self._cluster.delete_ledger(call.query["ledger_id"])

    # --- bookies ----------------------------------------------------------------------------------

    async def _bookies(self, call: Call) -> object:
        kind = call.query.get("type", "rw")
        if kind not in _MODES:
            raise IncorrectParameterError(f"type: expected rw or ro, found {kind[:20]!r}")
        if call.query.get("print_hostnames", False):
            rows = await self._cluster.bookies()
            wanted = [row for row in rows if row["state"] == _MODES[kind].value]
            return {row["bookie_id"]: row["address"] for row in wanted}
        registered = await self._lifecycle.registered()
        return {b: None for b, found in sorted(registered.items()) if found is _MODES[kind]}

    async def _infos(self, call: Call) -> object:
        return await self._cluster.bookie_infos()

    async def _info(self, call: Call) -> object:
        registered = await self._lifecycle.registered()
        known = {*await self._lifecycle.states.bookie_ids(), *registered}
        auditor = await self._replication.auditor()
        modes = list(registered.values())
        return {
            "auditorElected": auditor is not None,
            "auditorId": auditor or "",
            "clusterUnderReplicated": bool(await self._replication.under_replicated(limit=1)),
            "ledgerReplicationEnabled": await self._replication.tasks.is_enabled(),
            "totalBookiesCount": len(known),
            "writableBookiesCount": modes.count(Mode.WRITABLE),
            "readonlyBookiesCount": modes.count(Mode.READ_ONLY),
            "unavailableBookiesCount": len(known) - len(modes),
        }

    async def _cookies(self, call: Call) -> object:
        return list(await self._lifecycle.states.bookie_ids())

    # --- lifecycle --------------------------------------------------------------------------------

    async def _statuses(self, call: Call) -> object:
        return await self._lifecycle.statuses()

    async def _status(self, call: Call) -> object:
        return await self._lifecycle.status(parse_bookie_id(call.bookie_id))

    async def _step(self, call: Call) -> object:
        bookie_id = parse_bookie_id(call.bookie_id)
        match call.body["step"]:
            case "drain":
                may_fence = call.body.get("may_fence", True)
                found = await self._lifecycle.drain(bookie_id, call.by, may_fence=may_fence)
                async with self._cluster.client() as client:
                    left = await turn_read_only(client.bookies, bookie_id, put_read_only)
                return found | {"warning": "; ".join(filter(None, (found["warning"], left)))}
            case "cancel":
                return await self._lifecycle.cancel(bookie_id)
            case "mark-drained":
                accepted = call.body.get("accept_loss", [])
                return await self._lifecycle.mark_drained(bookie_id, call.by, accepted)
            case other:
                raise IncorrectParameterError(
                    f"body step: expected drain, cancel or mark-drained, found {other[:20]!r}"
                )

    async def _remove(self, call: Call) -> object:
        return await self._lifecycle.remove(parse_bookie_id(call.bookie_id))

    async def _at_risk(self, call: Call) -> object:
        wanted: list[str] = call.query["bookie"]
        if len(wanted) > _BOOKIES_MAX:
            raise IncorrectParameterError(
                f"parameter bookie: expected it 1 to {_BOOKIES_MAX} times, found {len(wanted)}"
            )
        ids: list[BookieId] = [parse_bookie_id(text) for text in wanted]
        return await self._lifecycle.at_risk(ids)
