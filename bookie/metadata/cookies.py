"""Cookies: proof that a bookie still has the directories and the cluster it had before.

A cookie names the bookie, its directories and the cluster. The store keeps one for each bookie,
every directory one in its file VERSION; check_cookies() lets a bookie start only when all of them
agree. A bookie whose disk was wiped has none: it would deny entries that it acknowledged, so it
must not start (G5). Text format and rules are those of Apache BookKeeper (Cookie,
LegacyCookieValidation; docs/formats/zookeeper.md).
"""

import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from google.protobuf import text_format

from bookie.errors import (
    BadVersionError,
    BookieStartError,
    CorruptFileError,
    IncorrectParameterError,
    MetadataVersionError,
    NodeExistsError,
    NoNodeError,
    NoSuchBookieError,
    NotEmptyError,
)
from bookie.ledger import proto_text
from bookie.ledger.types import BookieId
from bookie.metadata.bookies import absence, still_registered
from bookie.metadata.cluster import read_instance_id
from bookie.metadata.formats_pb2 import CookieFormat
from bookie.metadata.interfaces import ANY_VERSION, Delete, VersionedStore
from bookie.metadata.ledger_paths import COOKIES
from bookie.metadata.paths import join
from bookie.metadata.patience import BROKEN, PATIENCE_S, Patience, ask
from bookie.runtime.files import replace_file
from bookie.runtime.interfaces import Disk

LAYOUT_VERSION = 5
OLDEST_LAYOUT_VERSION = 3
VERSION_FILE = "VERSION"
_COOKIE_BYTES_MAX = 64 * 1024
_NAMED_IN_ERROR_MAX = 20


@dataclass(frozen=True, slots=True)
class Cookie:
    """One cookie. Directories are absolute paths, in the order of the configuration.

    IncorrectParameterError for a path that its text cannot say: it would be read as another.
    """

    bookie_id: BookieId
    journal_directories: tuple[str, ...]
    ledger_directories: tuple[str, ...]
    instance_id: str | None = None
    """Of the cluster; None: it has none."""
    index_directories: tuple[str, ...] = ()
    """Empty: the ledger directories."""

    def __post_init__(self) -> None:
        ledgers = (*self.ledger_directories, *self.index_directories)
        for paths, separator in ((self.journal_directories, ","), (ledgers, "\t")):
            for path in paths:
                if separator in path or not _is_utf8(path):
                    raise IncorrectParameterError(
                        f"directory {path!r}: expected UTF-8 without {separator!r}, which stands "
                        "between the paths in a cookie; choose a directory with another name"
                    )

    def to_bytes(self) -> bytes:
        """Return the text, layout 5."""
        message = CookieFormat(
            bookieHost=self.bookie_id,
            journalDir=",".join(self.journal_directories),
            ledgerDirs=_joined(self.ledger_directories),
        )
        if self.instance_id is not None:
            message.instanceId = self.instance_id
        if self.index_directories:
            message.indexDirs = _joined(self.index_directories)
        text = text_format.MessageToString(message, as_utf8=False)
        return f"{LAYOUT_VERSION}\n{text}".encode("ascii")

    @staticmethod
    def from_bytes(data: bytes, where: str) -> "Cookie":
        """Read layouts 3 (plain lines), 4 and 5; CorruptFileError names `where`."""
        if len(data) > _COOKIE_BYTES_MAX:
            raise CorruptFileError(
                f"{where}: expected a cookie, at most {_COOKIE_BYTES_MAX} bytes, found {len(data)}"
            )
        try:
            version_text, _, rest = data.decode("utf-8").partition("\n")
            version = int(version_text.strip())
        except ValueError:
            raise CorruptFileError(f"{where}: expected a cookie, found {data[:40]!r}") from None
        if version < OLDEST_LAYOUT_VERSION:
            raise CorruptFileError(
                f"{where}: expected a cookie of layout {OLDEST_LAYOUT_VERSION} or newer, found "
                f"{version}"
            )
        if version == OLDEST_LAYOUT_VERSION:
            return _from_lines(rest, where)
        message = CookieFormat()
        try:
            proto_text.parse(rest, message)
        except ValueError as error:
            raise CorruptFileError(f"{where}: expected a cookie, found {error}") from error
        if not message.IsInitialized():
            raise CorruptFileError(f"{where}: expected bookieHost, journalDir and ledgerDirs")
        return Cookie(
            BookieId(message.bookieHost),
            tuple(message.journalDir.split(",")),
            _split(message.ledgerDirs),
            message.instanceId or None,
            _split(message.indexDirs) if message.indexDirs else (),
        )

    def without_ledgers(self, names: Sequence[str]) -> "Cookie":
        """Return this cookie without the ledger directories of these names."""
        kept = tuple(name for name in self.ledger_directories if name not in names)
        return replace(self, ledger_directories=kept)

    def difference(self, found: "Cookie", *, allow_expansion: bool = False) -> str | None:
        """Say in what `found` contradicts this cookie, the configuration's; None: in nothing.

        allow_expansion: this one may name more ledger and index directories.
        """
        pairs: list[tuple[str, object, object]] = [
            ("bookie id", self.bookie_id, found.bookie_id),
            ("journal directories", self.journal_directories, found.journal_directories),
        ]
        ledger = ("ledger directories", self.ledger_directories, found.ledger_directories)
        index = (
            "index directories",
            self.index_directories or self.ledger_directories,
            found.index_directories or found.ledger_directories,
        )
        for name, ours, theirs in (ledger, index):
            if not (allow_expansion and set(theirs) <= set(ours)):
                pairs.append((name, ours, theirs))
        pairs.append(("cluster instance", self.instance_id, found.instance_id))
        for name, ours, theirs in pairs:
            if ours != theirs:
                return f"{name}: expected {ours}, found {theirs}"
        return None


def no_such_bookie(bookie_id: BookieId, known: Iterable[BookieId]) -> NoSuchBookieError:
    """Return the error for an id of which the cluster has no cookie; `known` are the others."""
    names = sorted(known)
    shown = ", ".join(names[:_NAMED_IN_ERROR_MAX]) or "none"
    more = len(names) - _NAMED_IN_ERROR_MAX
    return NoSuchBookieError(
        f"bookie {bookie_id}: expected one that this cluster knows, found no cookie of it; it "
        f"knows {shown}{f' and {more} more' if more > 0 else ''}; `bookie bookies list --all` "
        "lists them"
    )


class CookieStore:
    """The cookies of one cluster in the metadata store."""

    def __init__(self, store: VersionedStore, root: str) -> None:
        self._store = store
        self._root = root
        self._parent = join(root, COOKIES)

    async def instance_id(self) -> str | None:
        return await read_instance_id(self._store, self._root)

    async def read(self, bookie_id: BookieId) -> tuple[Cookie, int] | None:
        """Return cookie and version, or None; CorruptFileError."""
        path = join(self._parent, bookie_id)
        found = await self._newest(path)
        return None if found is None else (Cookie.from_bytes(found[0], path), found[1])

    async def ctime_ms(self, bookie_id: BookieId) -> int | None:
        """Return when the cookie was made, or None; one that is written keeps it."""
        path = join(self._parent, bookie_id)

        async def question() -> int | None:
            await self._store.sync(path)
            stat = await self._store.exists(path)
            return None if stat is None else stat.ctime_ms

        return await ask(self._store, PATIENCE_S, question)

    async def write(self, bookie_id: BookieId, cookie: Cookie, version: int | None) -> int:
        """Store a cookie; version None makes it, else that version is replaced.

        Returns the new version. MetadataVersionError: another bookie wrote it meanwhile.
        """
        path = join(self._parent, bookie_id)
        data = cookie.to_bytes()
        patience = Patience(self._store, PATIENCE_S)
        is_lost = False
        while True:
            try:
                if version is not None:
                    return (await self._store.write(path, data, version)).version
                await self._store.create(path, data, make_parents=True)
                return 0
            except (NodeExistsError, BadVersionError, NoNodeError) as error:
                expected = 0 if version is None else version + 1
                if is_lost and await self._holds(path, data, expected):
                    return expected
                raise MetadataVersionError(
                    f"{path}: expected "
                    f"{'no cookie' if version is None else f'a cookie of version {version}'}, "
                    f"found it otherwise ({error}); two bookies may run under this id"
                ) from error
            except BROKEN as error:
                is_lost = True
                await patience.again(error)

    async def delete(self, bookie_id: BookieId, version: int = ANY_VERSION) -> None:
        """Forget a stopped bookie's cookie; one that is not there is success.

        IllegalOperationError: the bookie is registered. What its caller read before, by a scan that
        takes long, may be so no longer where it has started meanwhile.
        """
        path = join(self._parent, bookie_id)

        async def question() -> None:
            absent = await absence(self._store, self._root, bookie_id)
            await self._store.multi([*absent, Delete(path, version)])

        try:
            await ask(self._store, PATIENCE_S, question)
        except NoNodeError as error:
            if error.path != path:
                raise
        except NodeExistsError as error:
            raise still_registered(bookie_id) from error
        except BadVersionError as error:
            raise MetadataVersionError(f"{error}") from error
        except NotEmptyError as error:
            raise MetadataVersionError(
                f"bookie {bookie_id}: expected no lifecycle state below its cookie, found one: a "
                "drain of it has begun; nothing was deleted"
            ) from error

    async def bookie_ids(self) -> tuple[BookieId, ...]:
        """Return every bookie that has a cookie, sorted."""
        try:
            names = await ask(self._store, PATIENCE_S, lambda: self._store.children(self._parent))
        except NoNodeError:
            names = []
        return tuple(BookieId(name) for name in names)

    async def _holds(self, path: str, data: bytes, version: int) -> bool:
        """Tell whether a write of data, its answer lost, was done and still stands."""
        return await self._newest(path) == (data, version)

    async def _newest(self, path: str) -> tuple[bytes, int] | None:
        """Return data and version, or None; no server that is behind is believed."""

        async def question() -> tuple[bytes, int]:
            await self._store.sync(path)
            data, stat = await self._store.read(path)
            return data, stat.version

        try:
            return await ask(self._store, PATIENCE_S, question)
        except NoNodeError:
            return None


class CookieDirectory(NamedTuple):
    """A directory with a VERSION file."""

    path: str
    """Relative to the root of the Disk; VERSION lies in it."""
    name: str
    """As the cookie calls the directory that it belongs to."""
    disk: Disk | None = None
    """Where the path is; None: on the Disk that check_cookies() is given."""


class FoundDirectory(NamedTuple):
    """What lies in a directory."""

    directory: CookieDirectory
    cookie: Cookie | None
    is_empty: bool


async def check_cookies(
    cookies: CookieStore,
    disk: Disk,
    cookie: Cookie,
    directories: Sequence[CookieDirectory],
    *,
    allow_expansion: bool = False,
    other_ids: Sequence[BookieId] = (),
    lost: Sequence[str] = (),
    on_loss: Callable[[tuple[str, ...]], None] = lambda names: None,
) -> bool:
    """Let a bookie start, or raise BookieStartError; stamp what is new. True: it is all new.

    `cookie` is what the configuration says, with the cluster's instance id. `other_ids`: under
    which this bookie may have run before, by another way of naming itself. `lost`: ledger
    directories, as cookies call them, that are gone for good; they are forgotten, after on_loss was
    called with those that a cookie names; one of them may be in `cookie`, new and empty. Reads and
    writes a few small files on the caller's thread.
    """
    stored: tuple[Cookie, int] | None = None
    found_ids: list[BookieId] = []
    for bookie_id in (*other_ids, cookie.bookie_id):
        found = await cookies.read(bookie_id)
        if found is not None:
            found_ids.append(bookie_id)
            stored = found
    inspected = [_inspect(directory.disk or disk, directory) for directory in directories]
    known = [one.cookie for one in inspected if one.cookie is not None]
    if stored is not None:
        known.append(stored[0])
    named = {name for one in known for name in one.ledger_directories}
    gone = tuple(name for name in lost if name in named)
    _expect_lost(cookie, inspected, gone)
    if gone and set(cookie.ledger_directories) <= named:
        allow_expansion = True  # a new disk in the place of a lost one
    inspected = [
        one if one.cookie is None else one._replace(cookie=one.cookie.without_ledgers(gone))
        for one in inspected
    ]
    if stored is not None:
        stored = (stored[0].without_ledgers(gone), stored[1])
        for bookie_id in found_ids:
            _insist(cookie, stored[0], f"the metadata store, {bookie_id}", allow_expansion)
    is_changed = must_stamp(
        cookie, None if stored is None else stored[0], inspected, allow_expansion=allow_expansion
    )
    if not is_changed and not gone:
        return False
    if gone:
        on_loss(gone)
    # The directories first: with a cookie in the store and none in a directory it cannot start.
    for directory in directories:
        _stamp(directory.disk or disk, directory, cookie)
    try:
        await cookies.write(cookie.bookie_id, cookie, None if stored is None else stored[1])
    except MetadataVersionError as error:
        raise BookieStartError(f"bookie {cookie.bookie_id}: {error}") from error
    return stored is None


def _expect_lost(cookie: Cookie, found: Sequence[FoundDirectory], lost: Sequence[str]) -> None:
    for one in found:
        if one.directory.name in lost and (one.cookie is not None or not one.is_empty):
            raise BookieStartError(
                f"bookie {cookie.bookie_id}: {one.directory.name}: expected a lost directory to be "
                "gone, or a new and empty one in its place, found files in it; take it off the "
                "list of lost ones, or empty it"
            )


def must_stamp(
    cookie: Cookie,
    stored: Cookie | None,
    directories: Sequence[FoundDirectory],
    *,
    allow_expansion: bool = False,
) -> bool:
    """Decide: True for a new bookie or new directories, False for a known one as it was.

    BookieStartError for everything else.
    """
    for found in directories:
        if found.cookie is not None:
            _insist(cookie, found.cookie, found.directory.name, allow_expansion)
    missing = [found for found in directories if found.cookie is None]
    names = ", ".join(found.directory.name for found in missing)
    if not missing:
        if stored is not None:
            # With expansion allowed, some may know of fewer directories: an expansion that was
            # interrupted between two of them goes on.
            known_cookies = [stored, *(found.cookie for found in directories if found.cookie)]
            return any(cookie.difference(one) is not None for one in known_cookies)
        raise BookieStartError(
            f"bookie {cookie.bookie_id}: its directories have cookies, the metadata store has "
            "none: it was removed from this cluster, or this is another one. If it belongs here, "
            "`bookie cookie create` makes the cookie"
        )
    if stored is None:
        full = [found.directory.name for found in directories if not found.is_empty]
        if not full:
            return True
        raise BookieStartError(
            f"bookie {cookie.bookie_id}: {', '.join(full)}: expected empty directories for a new "
            f"bookie, found files in them and no cookie in {names}"
        )
    if not allow_expansion:
        raise BookieStartError(
            f"bookie {cookie.bookie_id}: {names}: expected its cookie, found none: a disk was "
            "wiped, or is not mounted. It acknowledged entries that it may no longer have, so it "
            "must not start. Mount the disk; if one of several with entry logs is lost, start once "
            "with --lost-ledgers; if all is lost, recover the bookie's ledgers onto others and "
            "delete its cookie"
        )
    cookies = [stored, *(found.cookie for found in directories if found.cookie is not None)]
    known = {name for one in cookies for name in (*one.ledger_directories, *one.index_directories)}
    known |= {name for one in cookies for name in one.journal_directories}
    wrong = [
        f"{found.directory.name} ({'it had one' if found.directory.name in known else 'not empty'})"
        for found in missing
        if found.directory.name in known or not found.is_empty
    ]
    if wrong:
        raise BookieStartError(
            f"bookie {cookie.bookie_id}: {', '.join(wrong)}: expected new directories to be empty "
            "and known ones to have their cookie"
        )
    return True


def _insist(cookie: Cookie, found: Cookie, where: str, allow_expansion: bool) -> None:
    difference = cookie.difference(found, allow_expansion=allow_expansion)
    if difference is not None:
        raise BookieStartError(
            f"bookie {cookie.bookie_id}: the cookie in {where} is another's or the configuration "
            f"was changed: {difference}. Start it with the address and directories that the cookie "
            "names (and --expand to add some), or give it directories of its own"
        )


def _inspect(disk: Disk, directory: CookieDirectory) -> FoundDirectory:
    try:
        names = disk.list(directory.path)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
        names = []
    if VERSION_FILE not in names:
        return FoundDirectory(directory, None, not names)
    path = f"{directory.path}/{VERSION_FILE}"
    return FoundDirectory(directory, Cookie.from_bytes(disk.read(path), path), is_empty=False)


def _stamp(disk: Disk, directory: CookieDirectory, cookie: Cookie) -> None:
    """Write VERSION, durable when it returns."""
    parts = directory.path.split("/")
    for depth in range(1, len(parts) + 1):
        path = "/".join(parts[:depth])
        try:
            disk.make_directory(path)
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
        else:
            disk.sync_directory("/".join(parts[: depth - 1]))
    replace_file(disk, f"{directory.path}/{VERSION_FILE}", cookie.to_bytes())


def _is_utf8(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:  # the system's bytes, carried through by surrogates
        return False
    return True


def _joined(directories: Sequence[str]) -> str:
    """Return the count and the paths, separated by tabs."""
    return "\t".join([str(len(directories)), *directories])


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split("\t")[1:])


def _from_lines(text: str, where: str) -> Cookie:
    lines = text.split("\n")
    if len(lines) < 3 or not all(lines[:3]):
        raise CorruptFileError(f"{where}: expected three lines of a cookie, found {len(lines)}")
    host, journals, ledgers = lines[:3]
    return Cookie(BookieId(host), tuple(journals.split(",")), _split(ledgers))
