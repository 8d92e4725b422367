"""Is an LMDB file as long as its trees need? To read a page behind its end is a SIGBUS, no error.

Of LMDB 0.9, where a sound file may end before the last page that its meta page counts: pages that
were taken and given back in one transaction were never written. So the question is whether a tree
refers to a page behind the end. Only of a file that ends so early pages are read at all, and of
trees without large values only those that are no leaves.
"""

from collections.abc import Iterator
from itertools import chain
from struct import Struct, error

from bookie.runtime.interfaces import File

_META = Struct("=16x2I16x48s48s2Q")
"""Magic, version, two trees (free pages; the named databases), last page, transaction."""
_TREE = Struct("=I2H5Q")
"""Page size (of the first tree), flags, depth, pages of three kinds, entries, root page."""
_PAGE = Struct("=8x4H")  # pad, flags, lower, upper
_POINTER = Struct("=H")
_NODE = Struct("=4H")  # low and high half of a number, flags, bytes of the key
_NUMBER = Struct("=Q")
_OVERFLOW = Struct("=12xI")  # how many pages a large value takes
_MAGIC = 0xBEEFC0DE
_BRANCH = 1  # flag of a page
_LARGE, _TREE_INSIDE = 1, 2  # flags of a node
_NO_ROOT = (1 << 64) - 1


def missing_page(file: File) -> int | None:
    """Return a page that the file refers to and that is behind its end; None: there is none.

    None also for what is no LMDB file: to open it is an error. OSError.
    """
    metas = list(_metas(file))
    if not metas:
        return None
    page_bytes, trees, last_page, _ = max(metas, key=lambda meta: meta[3])
    page_count = file.size() // page_bytes
    if last_page < page_count:
        return None
    pages = _Pages(file, page_bytes, page_count)
    numbers = chain.from_iterable(pages.of_tree(tree, is_whole=True) for tree in trees)
    return next((number for number in numbers if number >= page_count), None)


def _metas(file: File) -> Iterator[tuple[int, tuple[bytes, bytes], int, int]]:
    """Yield page size, trees, last page and transaction of each meta page that can be read."""
    page_bytes = 0
    for number in range(2):
        data = file.read_at(number * page_bytes, _META.size)
        if len(data) < _META.size:
            return
        magic, _, free, named, last_page, transaction = _META.unpack(data)
        if magic != _MAGIC:
            return
        page_bytes = page_bytes or _TREE.unpack(free)[0]
        if page_bytes < _META.size:
            return
        yield page_bytes, (free, named), last_page, transaction


class _Pages:
    """The numbers of pages that trees refer to; those behind the end are named and not read."""

    def __init__(self, file: File, page_bytes: int, page_count: int) -> None:
        self._file = file
        self._page_bytes = page_bytes
        self._page_count = page_count

    def of_tree(self, tree: bytes, *, is_whole: bool = False) -> Iterator[int]:
        """Yield the pages of a tree. is_whole: its leaves may refer to pages, too."""
        _, _, depth, _, _, large_count, _, root = _TREE.unpack(tree)
        if root != _NO_ROOT:
            yield from self._of_page(root, depth, is_leaf_read=is_whole or large_count > 0)

    def _of_page(self, number: int, depth: int, *, is_leaf_read: bool) -> Iterator[int]:
        yield number
        if number >= self._page_count or depth < 1 or (depth == 1 and not is_leaf_read):
            return
        page = self._file.read_at(number * self._page_bytes, self._page_bytes)
        _, flags, lower, _ = _PAGE.unpack_from(page)
        try:
            for at in range(_PAGE.size, lower, _POINTER.size):
                offset = _POINTER.unpack_from(page, at)[0]
                low, high, more, key_bytes = _NODE.unpack_from(page, offset)
                value_at = offset + _NODE.size + key_bytes
                if flags & _BRANCH:
                    child = low | high << 16 | more << 32
                    yield from self._of_page(child, depth - 1, is_leaf_read=is_leaf_read)
                elif more & _TREE_INSIDE:
                    yield from self.of_tree(page[value_at : value_at + _TREE.size])
                elif more & _LARGE:
                    first = _NUMBER.unpack_from(page, value_at)[0]
                    yield first
                    if first < self._page_count:
                        head = self._file.read_at(first * self._page_bytes, _OVERFLOW.size)
                        (count,) = _OVERFLOW.unpack(head)
                        yield first + count - 1
        except error:  # no page of a tree: opening or reading it is an error of LMDB's own
            return
