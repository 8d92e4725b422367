"""Small sizes: a page of a few rows and an early rewrite of the manifest, while a history runs.

The product's limits are constants; a history of a hundred statements would reach neither.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

_PAGE_ROWS = 16
_REWRITE_BYTES = 6 * 1024

_SIZES: list[tuple[str, str, int]] = [
    ("herdpy.storage.page", "page_rows_max", _PAGE_ROWS),
    ("herdpy.storage.checkpoint_writer", "page_rows_max", _PAGE_ROWS),
    ("herdpy.storage.manifest", "_REWRITE_BYTES_MIN", _REWRITE_BYTES),
]


@contextmanager
def small_sizes() -> Iterator[None]:
    """Make the sizes small while the block runs; AttributeError when one has another name now."""
    places = [(importlib.import_module(module), name, size) for module, name, size in _SIZES]
    if find_spec("herdpy.storage.compaction") is not None:
        compaction = importlib.import_module("herdpy.storage.compaction")
        if hasattr(compaction, "page_rows_max"):
            places.append((compaction, "page_rows_max", _PAGE_ROWS))
    before = [getattr(module, name) for module, name, _ in places]
    for module, name, size in places:
        setattr(module, name, size)
    try:
        yield
    finally:
        for (module, name, _), size in zip(places, before, strict=True):
            setattr(module, name, size)
