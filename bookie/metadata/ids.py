"""Ledger ids: short ones while they last, then long ones, each given out once.

The store's sequence numbers give them: an ephemeral `idgen/ID-<number>` is made and removed, its
number is the id. Numbers from 2**31 - 1 on (the store's counter wraps) are the end of the short
ids: then, and whenever `idgen-long` is there, the upper half is the highest `HOB-<number>` below
`idgen-long`, the lower one a sequence number in it. Source: Apache BookKeeper's ZkLedgerIdGenerator
and LongZkLedgerIdGenerator. A lost answer wastes a number; no number is used twice, because a
counter lives as long as its parent node, and the last three HOB nodes are kept.
"""

from bookie.errors import (
    LedgerIdOverflowError,
    MetadataStoreError,
    NodeExistsError,
    NoNodeError,
    StoreError,
)
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.ledger_paths import (
    ID_GENERATION,
    LONG_ID_GENERATION,
    SHORT_ID_LIMIT,
    Layout,
)
from bookie.metadata.paths import join, name_of
from bookie.metadata.patience import BROKEN, Patience, ask

_SEQUENCE = "ID-"
_HIGH = "HOB-"
_FIRST_HIGH = 1
_HIGH_KEPT_COUNT = 3


class LedgerIds:
    """Generates ids of one cluster. Any number of clients may, at once."""

    def __init__(self, store: VersionedStore, root: str, layout: Layout, limit_s: float) -> None:
        self._store = store
        self._limit_s = limit_s
        flat = layout is Layout.FLAT
        self._short_parent = root if flat else join(root, ID_GENERATION)
        # Only the layouts with a place for long ids ever hand them out.
        has_long = layout in (Layout.HIERARCHICAL, Layout.LONG_HIERARCHICAL)
        self._long_parent = join(root, LONG_ID_GENERATION) if has_long else None
        self._is_long = False
        """True once idgen-long was seen: it stays."""

    async def generate(self) -> int:
        """Return an id that no other client gets.

        Errors: LedgerIdOverflowError, MetadataStoreError.
        """
        if self._long_parent is None:
            return await self._generate_short()
        if not self._is_long:
            long_parent = self._long_parent
            stat = await ask(self._store, self._limit_s, lambda: self._store.exists(long_parent))
            self._is_long = stat is not None
        if not self._is_long:
            try:
                return await self._generate_short()
            except LedgerIdOverflowError:
                await self._make(self._long_parent)
                self._is_long = True
        return await self._generate_long(self._long_parent)

    async def _generate_short(self) -> int:
        number = await self._next_number(self._short_parent, make_parents=True)
        if number is None:
            raise LedgerIdOverflowError(
                f"{self._short_parent}: its sequence numbers are used up, there are no more short "
                "ledger ids"
            )
        return number

    async def _generate_long(self, parent: str) -> int:
        highs = await self._highs(parent)
        if not highs:
            await self._make(join(parent, f"{_HIGH}{_FIRST_HIGH:010d}"))
            highs = [_FIRST_HIGH]
        while True:
            high = highs[-1]
            if high >= SHORT_ID_LIMIT:
                raise LedgerIdOverflowError(f"{parent}: there are no more long ledger ids")
            try:
                # Never made again here: its counter would begin anew.
                number = await self._next_number(
                    join(parent, f"{_HIGH}{high:010d}"), make_parents=False
                )
            except NoNodeError:
                highs = await self._highs(parent)
                continue
            if number is not None:
                break
            await self._make(join(parent, f"{_HIGH}{high + 1:010d}"))
            highs = await self._highs(parent)
        for old in highs[:-_HIGH_KEPT_COUNT]:
            await self._forget(join(parent, f"{_HIGH}{old:010d}"))
        return high << 32 | number

    async def _highs(self, parent: str) -> list[int]:
        """Return the numbers of the HOB nodes, ascending, none of them missed.

        A stale answer could miss the newest, and a full counter is where numbers would repeat.
        """

        async def question() -> list[str]:
            await self._store.sync(parent)
            return await self._store.children(parent)

        names = await ask(self._store, self._limit_s, question)
        digits = [name.removeprefix(_HIGH) for name in names if name.startswith(_HIGH)]
        return sorted(int(text) for text in digits if text.isascii() and text.isdigit())

    async def _next_number(self, parent: str, *, make_parents: bool) -> int | None:
        """Return a fresh sequence number below parent, or None when they are used up."""
        patience = Patience(self._store, self._limit_s)
        while True:
            try:
                path = await self._store.create(
                    join(parent, _SEQUENCE),
                    is_ephemeral=True,
                    is_sequence=True,
                    make_parents=make_parents,
                )
                break
            except BROKEN as error:
                # If it was made it goes with the session; its number is not used.
                await patience.again(error)
        await self._forget(path)
        text = name_of(path).removeprefix(_SEQUENCE)
        try:
            number = int(text)
        except ValueError:
            raise MetadataStoreError(f"{path}: expected a sequence number at its end") from None
        # The counter is a 32-bit number that wraps to the negative ones.
        return number if 0 <= number < SHORT_ID_LIMIT else None

    async def _make(self, path: str) -> None:
        patience = Patience(self._store, self._limit_s)
        while True:
            try:
                await self._store.create(path, make_parents=True)
                return
            except NodeExistsError:
                return
            except BROKEN as error:
                await patience.again(error)

    async def _forget(self, path: str) -> None:
        """Remove a node that is not needed any more; if that fails it does no harm."""
        try:
            await self._store.delete(path)
        except NoNodeError:
            pass
        except StoreError:
            pass  # an ephemeral goes with the session, an old HOB node with the next id
