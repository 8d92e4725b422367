"""LedgerListing: the LedgersInfo node of a tablespace, as the node sees it that has claimed it.

Every change is a compare-and-set at the version that was read. A lost answer is neither success nor
conflict: the same write is tried again at the same version, which can be done once at most, and
what is found then decides by its content (docs/formats/ledgers_info.md). One
asyncio loop; one call at a time.
"""

from bookie.errors import BadVersionError, NodeExistsError, NoNodeError
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.patience import BROKEN, PATIENCE_S, Patience, ask
from herdpy.cluster.ledgers_info import LedgersInfo
from herdpy.errors import LogFailedError, OperationalError, Retry


class ClaimLostError(LogFailedError):
    """Another node has claimed the list of ledgers: this one adds nothing any more."""


class LedgerListing:
    """See the module. `info` is what was read or written last."""

    def __init__(self, store: VersionedStore, path: str, *, patience_s: float = PATIENCE_S) -> None:
        self._store = store
        self.path = path
        self._patience_s = patience_s
        self._version = -1
        self.info = LedgersInfo(epoch=0)

    async def create(self) -> None:
        """Make the node of a new tablespace; OperationalError 42710: there is one."""
        patience = Patience(self._store, self._patience_s)
        data, is_lost = self.info.to_bytes(), False
        while True:
            try:
                await self._store.create(self.path, data, make_parents=True)
                return
            except NodeExistsError:
                if is_lost and (await self.read()) == LedgersInfo(epoch=0):
                    return
                raise OperationalError(
                    f"{self.path}: expected no list of ledgers, found one",
                    sqlstate="42710",
                    hint="it is another tablespace's, or was left by one that was dropped in part",
                ) from None
            except BROKEN as error:
                is_lost = True
                await patience.again(error)

    async def read(self) -> LedgersInfo:
        """Read what is there now, whichever server answers; OperationalError 58P01: no node."""

        async def question() -> None:
            await self._store.sync(self.path)
            data, stat = await self._store.read(self.path)
            self.info, self._version = LedgersInfo.of_bytes(data, self.path), stat.version

        try:
            await ask(self._store, self._patience_s, question)
        except NoNodeError:
            raise OperationalError(
                f"{self.path}: expected the list of a tablespace's ledgers, found none",
                sqlstate="58P01",
                hint="look whether ZooKeeper and the root are the cluster's; nothing was changed",
            ) from None
        return self.info

    async def claim(self, epoch: int) -> LedgersInfo:
        """Let no older epoch change the list any more, and return it; ClaimLostError."""
        while True:
            found = await self.read()
            if found.epoch >= epoch:
                raise self._lost(epoch)
            if await self._put(found.with_epoch(epoch)):
                return self.info

    async def add(self, ledger_id: int) -> None:
        """List a ledger behind all that are listed; ClaimLostError: another epoch has claimed."""
        found = self.info
        if found.ledgers and found.ledgers[-1] >= ledger_id:
            raise OperationalError(
                f"{self.path}: expected an id above {found.ledgers[-1]} for the next ledger, found "
                f"{ledger_id}",
                sqlstate="55000",
                retry=Retry.NEVER,
                hint="this BookKeeper gives ids that do not rise (RandomLedgerIdGenerator, or "
                "another cluster's); herdpy needs ids that do",
            )
        if not await self._put(found.with_ledger(ledger_id)):
            raise self._lost(found.epoch)

    async def may_be_listed(self, ledger_id: int, epoch: int) -> bool:
        """Tell, behind an add() that failed, whether a ledger of this epoch is or may get listed.

        The add() may be on its way until the list is at another version, or under another epoch.
        """
        version = self._version
        found = await self.read()
        if ledger_id in found.ledgers:
            return True
        return found.epoch == epoch and self._version == version

    async def _put(self, info: LedgersInfo) -> bool:
        """Write it at the version that was read; False: that is not the newest any more."""
        data, version = info.to_bytes(), self._version
        patience = Patience(self._store, self._patience_s)
        is_lost = False
        while True:
            try:
                self._version = (await self._store.write(self.path, data, version)).version
            except BadVersionError:
                found = await self.read()
                # Only this node writes this epoch: what is there with the same content is its own.
                return is_lost and found == info
            except BROKEN as error:
                is_lost = True
                await patience.again(error)
            else:
                self.info = info
                return True

    def _lost(self, epoch: int) -> ClaimLostError:
        return ClaimLostError(
            f"{self.path}: epoch {self.info.epoch} has claimed it, and this node has epoch {epoch}",
            hint="another node leads the tablespace",
        )
