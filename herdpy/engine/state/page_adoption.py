"""adopt(): what a commit of staged rows makes of its table; a part of apply(), by state alone.

Few rows go into the memtable, as those of any commit. Many stay where they are: their pages become
the table's, in levels of their own, and rows that the others hide are marked as dead. So what a
commit costs is bounded by keys, not rows, and needs no memory for either. Which way is taken is
not a part of the state; what the table then holds is.

Monitor of the tablespace, but for plan_adoption(), which reads immutable objects only.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from operator import is_
from typing import NamedTuple

from herdpy.engine.state.memtable import TRIMMED
from herdpy.engine.state.staged import Operation, Stage
from herdpy.engine.state.state import TableState
from herdpy.errors import InvariantViolation
from herdpy.model.row_memory import encoded_row_bytes
from herdpy.model.schema import Table
from herdpy.model.types import Key, Row
from herdpy.storage.staged_writer import memory_entries
from herdpy.storage.table_pages import PageEntry, TablePages

FEW_ROWS = 10_000
FEW_BYTES = 4 * 1024 * 1024
"""Up to so many, of so many bytes in the log, go into the memtable."""
_ROW_BYTES = 100


class Adoption(NamedTuple):
    """What becomes of a table's pages when it adopts those of stages."""

    before: TablePages
    stages: tuple[Stage, ...]
    staged: TablePages
    """What is staged, each key once."""
    repeated: Key | None
    """The least key that is staged twice, or is staged and in the table's pages already."""
    after: TablePages
    in_memory: Mapping[Key, Row | None]
    """By the keys that the memtable had: what is staged under each, so that none is looked up."""


def adopt(
    table: TableState,
    stages: Sequence[Stage],
    operation: Operation,
    position: int,
    horizon: Callable[[], list[int] | None],
    planned: Adoption | None,
    *,
    can_adopt_pages: bool,
    newer: Collection[Key] = (),
) -> TableState:
    """Return the table with the stages' rows as of `position`.

    planned: what plan_adoption() returned, which is used if it was about the same; with one the
    rows stay in pages however few they are.
    newer: keys for which the memtable has, or is to get, a later change of the same position.
    can_adopt_pages False: a compaction is writing the table's pages anew.

    Rows go one by one while such a compaction, or a checkpoint of the table, is under way: whoever
    applies many of them keeps both away (page_commits.py).
    """
    if not all(stage.table.has_rows_of(table.table) for stage in stages):
        raise InvariantViolation(f"I4: stages with other rows than table {table.table.id}")
    row_bytes = encoded_row_bytes(_ROW_BYTES, len(table.table.columns))
    is_few = planned is None and is_by_rows(stages, operation)
    if is_few or not can_adopt_pages or table.frozen:
        changes = _effects(table, stages, operation)
        table.memtable.put_all(_without(changes, newer), position, row_bytes, horizon)
        return table
    if planned is None or not _is_about(planned, table, stages):
        planned = plan_adoption(table, stages, operation)
    changes = _memtable_changes(table, planned, operation, newer)
    table.memtable.put_all(changes, position, row_bytes, horizon)
    table.memtable.note_change(position)
    return table._replace(pages=planned.after, is_unlisted=True)


def adopt_spilled(
    table: TableState,
    stages: Sequence[Stage],
    position: int,
    horizon: Callable[[], list[int] | None],
    planned: Sequence[Adoption],
    *,
    can_adopt_pages: bool,
    newer: Collection[Key] = (),
) -> TableState:
    """Return the table with what a transaction spilled as of `position`; as adopt()."""
    for place, stage in enumerate(stages):
        table = adopt(
            table,
            (stage,),
            stage.operation,
            position,
            horizon,
            planned[place] if place < len(planned) else None,
            can_adopt_pages=can_adopt_pages,
            newer=newer,
        )
    return table


def _without(
    changes: Iterable[tuple[Key, Row | None]], newer: Collection[Key]
) -> Iterable[tuple[Key, Row | None]]:
    return (change for change in changes if change[0] not in newer) if newer else changes


class SpilledView(NamedTuple):
    """A table's pages as a transaction sees them that has spilled changes; immutable."""

    before: TablePages
    stages: tuple[Stage, ...]
    steps: tuple[Adoption, ...]

    @property
    def pages(self) -> TablePages:
        return self.steps[-1].after if self.steps else self.before

    def is_of(self, before: TablePages, stages: Sequence[Stage]) -> bool:
        same = len(stages) == len(self.stages) and all(map(is_, stages, self.stages))
        return before is self.before and same


def spilled_view(
    table: TableState, stages: Sequence[Stage], known: SpilledView | None = None
) -> SpilledView:
    """Return what a transaction makes of a table's pages by these stages, one after the other.

    `known` is used as far as it is about the same. Any thread. InvariantViolation: there are
    changes in memory that the pages lack; who spills has made pages of them, and locked the table.
    """
    if any(len(memtable) for memtable in table.memtables):
        raise InvariantViolation(f"I4: table {table.table.id} was written while its lock was held")
    if known is not None and known.is_of(table.pages, stages):
        return known
    steps = plan_spilled(table, stages, () if known is None else known.steps)
    first = steps[0].before if steps else table.pages
    return SpilledView(first, tuple(stages), tuple(steps))


def plan_spilled(
    table: TableState, stages: Sequence[Stage], known: Sequence[Adoption] = ()
) -> list[Adoption]:
    """Work out what adopting these stages means, one after the other; as plan_adoption().

    `known` is used as far as it is about the same.
    """
    steps: list[Adoption] = []
    for place, stage in enumerate(stages):
        step = known[place] if place < len(known) else None
        if step is None or not _is_about(step, table, (stage,)):
            step = plan_adoption(table, (stage,), stage.operation)
        steps.append(step)
        table = table._replace(pages=step.after)
    return steps


def _is_about(planned: Adoption, table: TableState, stages: Sequence[Stage]) -> bool:
    return (
        planned.before is table.pages
        and len(planned.stages) == len(stages)
        and all(map(is_, planned.stages, stages))
    )


def is_at_rest(table: TableState) -> bool:
    """Return whether a table may adopt pages at once: of its memtables little is looked through."""
    return len(table.memtable) <= FEW_ROWS and not table.frozen


def is_by_rows(stages: Sequence[Stage], operation: Operation) -> bool:
    """Return whether rows go into the memtable one by one."""
    if operation is Operation.UPDATE:
        return True  # it needs the rows that are there: what is staged are parts of rows
    if operation is Operation.REPLACE:
        return False  # all rows that are there would be deleted one by one
    row_count = sum(stage.row_count for stage in stages)
    return row_count <= FEW_ROWS and sum(stage.byte_count for stage in stages) <= FEW_BYTES


# --- by rows -------------------------------------------------------------------------------------


def net_changes(stages: Sequence[Stage], operation: Operation) -> dict[Key, Row]:
    """Return the staged row of each key: the last one, for IGNORE the first."""
    found: dict[Key, Row] = {}
    is_first = operation is Operation.IGNORE
    for stage in stages:
        for key, row in keyed_rows(stage):
            if not (is_first and key in found):
                found[key] = row
    return found


def keyed_rows(stage: Stage) -> Iterable[tuple[Key, Row]]:
    """Yield the rows of a stage, the later ones of a key behind the earlier ones."""
    from herdpy.storage.arrow_staged import staged_rows

    key_of = stage.table.key_of
    for entry in stage.pages.entries():
        for row in entry.live_rows(0, entry.row_count):
            yield key_of(row), row
    for piece in stage.pieces:
        for row in staged_rows(stage.table, piece.data, piece.first_row_id):
            yield key_of(row), row


def newest_row(table: TableState, key: Key) -> Row | None:
    for memtable in table.memtables:
        version = memtable.chains.get(key)
        if version is not None:
            if version is TRIMMED:
                raise InvariantViolation("I4: a memtable of the state was given up")
            return version[1]
    return table.pages.get(key)


def _effects(
    table: TableState, stages: Sequence[Stage], operation: Operation
) -> Iterable[tuple[Key, Row | None]]:
    if operation is Operation.UPDATE:
        return updated_rows(table, stages).items()
    changes = net_changes(stages, operation)
    if operation in (Operation.APPEND, Operation.UPSERT):
        return changes.items()
    if operation is Operation.REPLACE:
        gone = [key for key in _keys(table) if key not in changes]
        return [*((key, None) for key in gone), *changes.items()]
    found = ((key, row, newest_row(table, key)) for key, row in changes.items())
    if operation is Operation.IGNORE:
        return [(key, row) for key, row, now in found if now is None]
    return [(key, None) for key, _, now in found if now is not None]


def updated_rows(table: TableState, stages: Sequence[Stage]) -> dict[Key, Row]:
    """Return the rows that change; each stage may give other columns."""
    found: dict[Key, Row] = {}
    for stage in stages:
        given = set(stage.ordinals)
        for key, row in keyed_rows(stage):
            now = found.get(key) or newest_row(table, key)
            if now is not None:
                pairs = enumerate(zip(now, row, strict=True))
                found[key] = tuple(new if i in given else old for i, (old, new) in pairs)
    return found


def _keys(table: TableState) -> Iterable[Key]:
    seen: dict[Key, bool] = {}
    for memtable in table.memtables:
        for key, version in memtable.chains.items():
            seen.setdefault(key, version[1] is not None)
    key_of = table.table.key_of
    for row in chain.from_iterable(table.pages.range(None, None)):
        seen.setdefault(key_of(row), True)
    return [key for key, is_there in seen.items() if is_there]


# --- by pages ------------------------------------------------------------------------------------


def plan_adoption(table: TableState, stages: Sequence[Stage], operation: Operation) -> Adoption:
    """Work out what adopting the stages' pages means; of the table's memtable the keys are read."""
    from herdpy.storage.arrow_shadows import Shadows, shadows

    definition, pages = table.table, table.pages
    is_first_kept = operation is Operation.IGNORE
    levels = [level for stage in stages for level in _levels_of(stage)]
    own = [level for level in (pages.base, *pages.runs) if level]
    # Of a table without key only what a transaction changes has ids that are there already.
    has_keys = not definition.is_heap or operation in (Operation.UPSERT, Operation.DELETE)
    inner: Shadows = {}
    if has_keys and len(levels) > 1:
        inner = shadows(definition, levels, is_first_kept=is_first_kept)
    kept = [_marked(level, inner) for level in levels]
    staged = _packed(definition, TablePages(definition), [e for level in kept for e in level])
    hidden: Shadows = {}
    if has_keys and own and operation is not Operation.REPLACE:
        staged_levels = [level for level in (staged.base, *staged.runs) if level]
        hidden = shadows(definition, [*own, *staged_levels], is_first_kept=is_first_kept)
    repeated = _least(inner) or _least(hidden)
    in_memory = _staged_in_memory(table, staged, operation)
    if operation is Operation.REPLACE:
        return Adoption(pages, tuple(stages), staged, repeated, staged, in_memory)
    base = pages
    if not is_first_kept and hidden:
        base = TablePages(
            definition,
            _marked(pages.base, hidden),
            tuple(level for run in pages.runs if (level := _marked(run, hidden))),
        )
    if operation is Operation.DELETE:
        return Adoption(pages, tuple(stages), staged, repeated, base, in_memory)
    added = [entry for level in (staged.base, *staged.runs) for entry in level]
    if is_first_kept:
        added = list(_marked(added, hidden))
    after = _packed(definition, base, added)
    return Adoption(pages, tuple(stages), staged, repeated, after, in_memory)


def _staged_in_memory(
    table: TableState, staged: TablePages, operation: Operation
) -> dict[Key, Row | None]:
    """Return what is staged under the keys of a memtable, which may get more of them meanwhile."""
    if table.table.is_heap and operation is Operation.APPEND:
        return {}
    return {key: staged.get(key) for key in list(table.memtable.chains)}


def _levels_of(stage: Stage) -> list[Sequence[PageEntry]]:
    """Return the runs of a stage, the oldest first; pieces become pages in memory."""
    levels: list[Sequence[PageEntry]] = [*stage.pages.runs]
    if stage.pages.base:
        raise InvariantViolation("I4: pages of a stage in its base")
    if stage.pieces:
        levels += memory_entries(
            stage.table,
            [(piece.data, piece.first_row_id) for piece in stage.pieces],
            keeps_repeats=stage.operation.refuses_repeats,
            is_first_kept=stage.operation is Operation.IGNORE,
        )
    return levels


def _marked(level: Sequence[PageEntry], dead: Mapping[PageEntry, int]) -> tuple[PageEntry, ...]:
    """Return the entries with more dead rows; those with nothing else are left out."""
    found: list[PageEntry] = []
    for entry in level:
        bits = dead.get(entry, 0)
        if bits:
            bits |= int.from_bytes(entry.dead or b"", "little")
            if bits.bit_count() == entry.row_count:
                continue
            entry = entry.with_unlisted_bitmap(bits.to_bytes((entry.row_count + 7) // 8, "little"))
        found.append(entry)
    return tuple(found)


def _least(dead: Mapping[PageEntry, int]) -> Key | None:
    keys = [entry.page.key((bits & -bits).bit_length() - 1) for entry, bits in dead.items() if bits]
    return min(keys, default=None)


class _Level:
    """A level under construction: disjoint entries by their first key."""

    def __init__(self, run: int, entries: Sequence[PageEntry] = ()) -> None:
        self.run = run
        self.entries = list(entries)
        self._lows = [entry.low for entry in entries]

    def take(self, entry: PageEntry) -> bool:
        """Add an entry, unless it overlaps another one."""
        place = bisect_left(self._lows, entry.low)
        if place and self.entries[place - 1].high >= entry.low:
            return False
        if place < len(self.entries) and self._lows[place] <= entry.high:
            return False
        self.entries.insert(place, entry.in_run(self.run))
        self._lows.insert(place, entry.low)
        return True


def _alone(entries: Sequence[PageEntry]) -> set[PageEntry]:
    """Return the entries that overlap none of the others; these ascend by their first keys."""
    found: set[PageEntry] = set()
    highest: Key = ()
    for place, entry in enumerate(entries):
        is_last = place + 1 == len(entries)
        if entry.low > highest and (is_last or entry.high < entries[place + 1].low):
            found.add(entry)
        highest = max(highest, entry.high)
    return found


def _packed(table: Table, pages: TablePages, added: Sequence[PageEntry]) -> TablePages:
    """Put entries into the base and, where they overlap it, into as few new runs as can be."""
    newest = max((entry.ref.run for entry in pages.entries()), default=0)
    levels = [_Level(0, pages.base)]
    entries = sorted(added, key=lambda entry: entry.low)
    alone = _alone(entries)
    for entry in entries:
        # A base that is full of holes would have to be written anew with all that lies over it.
        fitting = levels if entry in alone else levels[1:]
        if not any(level.take(entry) for level in fitting):
            newest += 1
            level = _Level(newest)
            level.take(entry)
            levels.append(level)
    runs = (*pages.runs, *(tuple(level.entries) for level in levels[1:]))
    return TablePages(table, tuple(levels[0].entries), runs)


def _memtable_changes(
    table: TableState, planned: Adoption, operation: Operation, newer: Collection[Key]
) -> Iterable[tuple[Key, Row | None]]:
    """Return what changes of the keys in memtables, which hide the pages, but for `newer` ones."""
    in_memory, staged = planned.in_memory, planned.staged
    if table.table.is_heap and operation is Operation.APPEND:
        return []
    changes: list[tuple[Key, Row | None]] = []
    for key, version in table.memtable.chains.items():
        if key in newer:
            continue
        now: Row | None = version[1]
        row = in_memory[key] if key in in_memory else staged.get(key)
        if operation is Operation.REPLACE:
            if row is not None or now is not None:
                changes.append((key, row))
        elif row is None:
            continue
        elif operation is Operation.DELETE:
            if now is not None:
                changes.append((key, None))
        elif operation is not Operation.IGNORE or now is None:
            changes.append((key, row))
    return changes
