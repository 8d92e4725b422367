"""Which copies of a ledger's settled entries are missing: by the list of bookies, and by reading.

A member that is not registered is lost, one that must be left is leaving. Of every other member the
first and the last entry that it must have are read and verified; a suspect is also asked for the
list of all its entries. A member that denies an entry, gives a damaged one or cannot read its disk
lacks copies. A suspect that cannot make the list for its disk's sake is unsure of all of them.
One that is silent is undecided: nothing is concluded from it.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain

from bookie.autorecovery.spans import Span, ends_at, entries_at, runs_at, spans_of
from bookie.client.interfaces import ReadReply
from bookie.client.services import Services
from bookie.errors import DigestMismatchError, IllegalOperationError, MalformedFrameError
from bookie.ledger.codec import EntryDigest
from bookie.ledger.statuses import NEGATIVES
from bookie.ledger.types import BookieId, DigestType, LedgerMetadata, Status
from bookie.proto.availability import Availability, decode

_READS_AT_ONCE = 256
_RUNS_PER_TURN = 1024
_LACKING = (*NEGATIVES, Status.IO_ERROR)


class Fault(Enum):
    """Why a member's copies do not count."""

    LOST = "lost"
    LEAVING = "leaving"
    LACKING = "lacking"
    UNSURE = "unsure"
    """It cannot say what it has: a lost disk may have held it. Another bookie has to have it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One member of one span of which the copies do not count."""

    span: Span
    index: int
    bookie: BookieId
    fault: Fault
    held: Availability | None = None
    """What a LACKING member has intact, as it says; None: not known, take it for nothing."""

    def missing(self, metadata: LedgerMetadata, *, is_in_place: bool) -> Iterator[int]:
        """Yield the entries that another bookie must get; or this one, when it keeps its place."""
        if self.held is None or not is_in_place:
            return entries_at(metadata, self.span, self.index)
        runs = runs_at(metadata, self.span, self.index)
        return chain.from_iterable(map(self.held.lacking, runs))


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found of one ledger."""

    findings: tuple[Finding, ...]
    undecided: tuple[str, ...]
    """Bookies that could not be asked, each with what came instead of an answer."""


def digest_of(metadata: LedgerMetadata) -> EntryDigest:
    """Return what verifies the ledger's entries; IllegalOperationError without its password."""
    if metadata.password is None:
        raise IllegalOperationError(
            f"ledger {metadata.ledger_id}: its metadata is of an old format and does not hold the "
            "password, without which its entries cannot be verified; read it with its password "
            "and write it again as a new ledger"
        )
    return EntryDigest.of(metadata.digest_type or DigestType.CRC32, metadata.password)


class LedgerCheck:
    """Checks one ledger; run() once. `suspects` are asked for the list of all their entries."""

    def __init__(
        self,
        services: Services,
        metadata: LedgerMetadata,
        *,
        leaving: Collection[BookieId] = (),
        suspects: Collection[BookieId] = (),
    ) -> None:
        self._services = services
        self._metadata = metadata
        self._digest = digest_of(metadata)
        self._leaving = leaving
        self._suspects = suspects
        self._registered = services.bookies.registered
        self._undecided: dict[str, None] = {}

    async def run(self) -> CheckResult:
        found: dict[tuple[int, int], Finding] = {}
        reads: list[tuple[Finding, int]] = []
        members: list[Finding] = []
        for span in spans_of(self._metadata):
            for index, bookie in enumerate(span.ensemble):
                fault = self._fault_of(bookie)
                member = Finding(span, index, bookie, fault or Fault.LACKING)
                if fault is not None:
                    found[span.first, index] = member
                    continue
                members.append(member)
                reads += [(member, e) for e in ends_at(self._metadata, span, index)]
        for start in range(0, len(reads), _READS_AT_ONCE):
            for member in await self._read(reads[start : start + _READS_AT_ONCE]):
                found[member.span.first, member.index] = member
        await self._ask_suspects(members, found)
        findings = tuple(found[place] for place in sorted(found))
        return CheckResult(findings, tuple(self._undecided))

    def _fault_of(self, bookie: BookieId) -> Fault | None:
        if bookie not in self._registered:
            return Fault.LOST
        return Fault.LEAVING if bookie in self._leaving else None

    async def _read(self, reads: list[tuple[Finding, int]]) -> list[Finding]:
        """Read one entry of each member; return the members that lack theirs."""
        loop = asyncio.get_running_loop()
        ledger_id = self._metadata.ledger_id
        answers: list[asyncio.Future[ReadReply]] = []
        for member, entry_id in reads:
            answered: asyncio.Future[ReadReply] = loop.create_future()
            answers.append(answered)
            self._services.channels.read(member.bookie, ledger_id, entry_id, setter(answered))
        lacking: list[Finding] = []
        for (member, entry_id), reply in zip(reads, await asyncio.gather(*answers), strict=True):
            if reply.status in _LACKING:
                lacking.append(member)
            elif reply.status is not Status.OK:
                self._undecided[f"{member.bookie} ({reply.status.name})"] = None
            elif not self._is_intact(reply, entry_id):
                self._services.report_damage(ledger_id, entry_id, member.bookie)
                lacking.append(member)
        return lacking

    def _is_intact(self, reply: ReadReply, entry_id: int) -> bool:
        try:
            self._digest.open(reply.body, self._metadata.ledger_id, entry_id)
        except DigestMismatchError:
            return False
        return True

    async def _ask_suspects(
        self, members: list[Finding], found: dict[tuple[int, int], Finding]
    ) -> None:
        """Compare with what a suspect says that it has; not where its end was damaged."""
        for bookie in sorted({m.bookie for m in members if m.bookie in self._suspects}):
            status, held = await self._held_by(bookie)
            if held is None and status is not Status.IO_ERROR:
                continue  # Apache's bookies answer this with some kinds of storage only
            for member in members:
                place = member.span.first, member.index
                if member.bookie != bookie or place in found:
                    continue
                if held is None:
                    found[place] = replace(member, fault=Fault.UNSURE)
                    continue
                if await self._lacks(member, held):
                    found[place] = replace(member, held=held)

    async def _lacks(self, member: Finding, held: Availability) -> bool:
        """Tell whether some entry that a member must have is not held; lets others run between."""
        for number, run in enumerate(runs_at(self._metadata, member.span, member.index), 1):
            if next(held.lacking(run), None) is not None:
                return True
            if not number % _RUNS_PER_TURN:
                await asyncio.sleep(0)
        return False

    async def _held_by(self, bookie: BookieId) -> tuple[Status, Availability | None]:
        """Return what a bookie answers, and what it has; None: it does not say."""
        answered: asyncio.Future[tuple[Status, bytes]] = asyncio.get_running_loop().create_future()

        def on_done(status: Status, data: bytes) -> None:
            if not answered.done():
                answered.set_result((status, data))

        self._services.channels.list_entries(bookie, self._metadata.ledger_id, on_done)
        status, data = await answered
        if status is not Status.OK:
            return status, None
        try:
            return status, decode(data)
        except MalformedFrameError:
            return status, None


def setter(answered: "asyncio.Future[ReadReply]") -> Callable[[ReadReply], None]:
    """Return an on_done that hands the reply to a future, unless that was cancelled."""

    def on_done(reply: ReadReply) -> None:
        if not answered.done():
            answered.set_result(reply)

    return on_done
