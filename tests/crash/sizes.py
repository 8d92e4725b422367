"""Small sizes: pages of a few rows, early rewrites and compactions, while a history runs.

The product's limits are constants; a history of a hundred statements would reach none of them.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager

_PAGE_ROWS = 16
_REWRITE_BYTES = 6 * 1024
_SPARSE_BYTES = 1024
_RECORD_BYTES = 512
_UNLOGGED_BYTES = 64
_FEW_ROWS = 8
_MANY_ROWS = 40
_PART_BYTES = 4 * 1024
_FREED_BYTES = 256
_LOOK_ROWS = 2
_PIECE_ROWS = 5
MONITOR_ROWS = 3

_SIZES: list[tuple[str, str, int]] = [
    ("herdpy.storage.page", "page_rows_max", _PAGE_ROWS),
    ("herdpy.storage.checkpoint_writer", "page_rows_max", _PAGE_ROWS),
    ("herdpy.storage.compaction", "page_rows_max", _PAGE_ROWS),
    ("herdpy.storage.arrow_pages", "page_rows_max", _PAGE_ROWS),
    ("herdpy.storage.arrow_shadows", "page_rows_max", _PAGE_ROWS),
    ("herdpy.storage.compaction", "_MANY_ROWS", _MANY_ROWS),
    ("herdpy.storage.arrow_shadows", "_PART_BYTES", _PART_BYTES),
    ("herdpy.engine.state.page_adoption", "FEW_ROWS", _FEW_ROWS),
    ("herdpy.storage.compaction", "_SPARSE_BYTES_MIN", _SPARSE_BYTES),
    ("herdpy.engine.maintenance.compaction", "_BESIDE_PAGES_BYTES", _FREED_BYTES),
    ("herdpy.storage.manifest", "_REWRITE_BYTES_MIN", _REWRITE_BYTES),
    ("herdpy.log.record", "record_bytes_max", _RECORD_BYTES),
    ("herdpy.engine.state.tablespace", "unlogged_bytes_max", _UNLOGGED_BYTES),
    ("herdpy.engine.writes.row_writes", "_LOOK_ROWS", _LOOK_ROWS),
    ("herdpy.engine.writes.spilled_writes", "_PIECE_ROWS", _PIECE_ROWS),
    ("herdpy.engine.writes.row_writes", "monitor_rows_max", MONITOR_ROWS),
    ("herdpy.engine.state.tablespace", "monitor_rows_max", MONITOR_ROWS),
    ("herdpy.engine.state.tablespace", "monitor_rows_alone_max", 2 * MONITOR_ROWS),
]


@contextmanager
def small_sizes() -> Iterator[None]:
    """Make the sizes small while the block runs; AttributeError when one has another name now."""
    places = [(importlib.import_module(module), name, size) for module, name, size in _SIZES]
    before = [getattr(module, name) for module, name, _ in places]
    for module, name, size in places:
        setattr(module, name, size)
    try:
        yield
    finally:
        for (module, name, _), size in zip(places, before, strict=True):
            setattr(module, name, size)
