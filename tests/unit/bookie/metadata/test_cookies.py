"""Cookies: their text, and which bookie starts; CookieTest and CookieIndexDirTest in our words."""

import asyncio
import math
from dataclasses import replace

import pytest

from bookie.errors import (
    BookieStartError,
    CorruptFileError,
    IllegalOperationError,
    IncorrectParameterError,
    MetadataVersionError,
)
from bookie.ledger.types import BookieId
from bookie.metadata.cookies import (
    VERSION_FILE,
    Cookie,
    CookieDirectory,
    CookieStore,
    check_cookies,
)
from bookie.metadata.memory import Fate
from bookie.runtime.interfaces import Disk
from bookie.runtime.memory_disk import MemoryDisk
from tests.fixtures.metadata import ROOT, MetadataWorld, ScriptedLink, run

BOOKIE = BookieId("127.0.0.1:3181")
INSTANCE = "5b56a7e5-8cd9-4c7e-a2f9-6a2b1f0e9d11"
COOKIE = Cookie(BOOKIE, ("/tmp/bk-txn",), ("/tmp/bk-data",), INSTANCE)
GOLDEN = (
    b'5\nbookieHost: "127.0.0.1:3181"\njournalDir: "/tmp/bk-txn"\n'
    b'ledgerDirs: "1\\t/tmp/bk-data"\ninstanceId: "5b56a7e5-8cd9-4c7e-a2f9-6a2b1f0e9d11"\n'
)
JOURNAL = CookieDirectory("journal/current", "/tmp/bk-txn")
LEDGERS = CookieDirectory("ledgers/current", "/tmp/bk-data")
MORE = CookieDirectory("more/current", "/tmp/bk-more")


# --- the text -------------------------------------------------------------------------------------


def test_golden_bytes() -> None:
    assert COOKIE.to_bytes() == GOLDEN
    assert Cookie.from_bytes(GOLDEN, "here") == COOKIE


def test_many_directories_and_an_index() -> None:
    cookie = Cookie(BOOKIE, ("/j1", "/j2"), ("/l1", "/l 2", "/l\u00e43"), None, ("/i1", "/i2"))
    text = cookie.to_bytes()
    assert b'journalDir: "/j1,/j2"\n' in text
    assert b'ledgerDirs: "3\\t/l1\\t/l 2\\t/l\\303\\2443"\n' in text
    assert b"instanceId" not in text
    assert text.endswith(b'indexDirs: "2\\t/i1\\t/i2"\n')
    assert Cookie.from_bytes(text, "here") == cookie


def test_older_layouts_are_read() -> None:
    assert Cookie.from_bytes(b"4" + GOLDEN[1:], "here") == COOKIE
    plain = b"3\n127.0.0.1:3181\n/tmp/bk-txn\n1\t/tmp/bk-data\n"
    assert Cookie.from_bytes(plain, "here") == replace(COOKIE, instance_id=None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"five\n",
        b"2\n127.0.0.1:3181\n/tmp/bk-txn\n1\t/tmp/bk-data\n",
        b"3\n127.0.0.1:3181\n/tmp/bk-txn\n",
        b'5\nbookieHost: "x"\n',
        b"5\nnonsense",
        b"5\nunknown: 1\n",
        GOLDEN.replace(b"bk-txn", b"bk\\qtxn"),
        GOLDEN.replace(b"bk-txn", b"bk\\377txn"),
        b"\xff\xfe",
        b"5\n" + b"#" * 100_000,
    ],
)
def test_damaged_cookies_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match="ledgers/VERSION"):
        Cookie.from_bytes(data, "ledgers/VERSION")


@pytest.mark.parametrize(
    "change",
    [
        {"journal_directories": ("/tmp/a,b",)},
        {"ledger_directories": ("/tmp/a\tb",)},
        {"index_directories": ("/i", "/tmp/a\tb")},
        {"ledger_directories": ("/tmp/\udcff",)},
    ],
)
def test_a_path_that_a_cookie_cannot_say_is_refused(change: dict[str, object]) -> None:
    """Else the bookie starts once: the cookie that it finds then is another's."""
    with pytest.raises(IncorrectParameterError, match="another name"):
        replace(COOKIE, **change)  # type: ignore[arg-type]


def test_what_separates_journals_may_stand_in_other_paths() -> None:
    cookie = Cookie(BOOKIE, ("/tmp/a\tb",), ("/l,1", "/l,2"), INSTANCE, ("/i,1",))
    assert Cookie.from_bytes(cookie.to_bytes(), "here") == cookie


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"bookie_id": BookieId("127.0.0.1:3182")}, "bookie id"),
        ({"journal_directories": ("/else",)}, "journal directories"),
        ({"ledger_directories": ("/else",)}, "ledger directories"),
        ({"ledger_directories": ("/tmp/bk-data", "/more")}, "ledger directories"),
        ({"index_directories": ("/index",)}, "index directories"),
        ({"instance_id": "another"}, "cluster instance"),
        ({"instance_id": None}, "cluster instance"),
    ],
)
def test_every_difference_counts(change: dict[str, object], word: str) -> None:
    other = replace(COOKIE, **change)  # type: ignore[arg-type]
    for one, two in ((COOKIE, other), (other, COOKIE)):
        assert (one.difference(two) or "").startswith(word)
    assert COOKIE.difference(COOKIE) is None


def test_index_directories_default_to_the_ledger_directories() -> None:
    said = replace(COOKIE, index_directories=COOKIE.ledger_directories)
    assert COOKIE.difference(said) is said.difference(COOKIE) is None


def test_expansion_allows_more_directories_and_not_fewer_or_others() -> None:
    wide = replace(COOKIE, ledger_directories=("/tmp/bk-data", "/more"))
    assert wide.difference(COOKIE, allow_expansion=True) is None
    assert COOKIE.difference(wide, allow_expansion=True) is not None
    moved = replace(wide, journal_directories=("/else",))
    assert moved.difference(COOKIE, allow_expansion=True) is not None


# --- the store ------------------------------------------------------------------------------------


def test_the_store_keeps_cookies_by_bookie() -> None:
    async def scenario(world: MetadataWorld) -> None:
        instance_id = await world.format()
        cookies = CookieStore(world.client(), ROOT)
        assert await cookies.instance_id() == instance_id
        assert await cookies.bookie_ids() == ()
        assert await cookies.read(BOOKIE) is None
        assert await cookies.write(BOOKIE, COOKIE, None) == 0
        assert world.node(f"{ROOT}/cookies/{BOOKIE}")[0] == GOLDEN
        assert await cookies.write(BOOKIE, COOKIE, 0) == 1
        assert await cookies.read(BOOKIE) == (COOKIE, 1)
        assert await cookies.bookie_ids() == (BOOKIE,)
        for version in (None, 0, 7):
            with pytest.raises(MetadataVersionError):
                await cookies.write(BOOKIE, COOKIE, version)
        with pytest.raises(MetadataVersionError):
            await cookies.delete(BOOKIE, 0)
        await cookies.delete(BOOKIE, 1)
        await cookies.delete(BOOKIE)
        with pytest.raises(MetadataVersionError):
            await cookies.write(BOOKIE, COOKIE, 1)
        assert await cookies.bookie_ids() == ()

    run(scenario)


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
@pytest.mark.parametrize("lag_s", [0.0, math.inf])
def test_lost_answers_of_cookie_writes(fate: Fate, lag_s: float) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        link = ScriptedLink()
        link.lag_s = lag_s
        cookies = CookieStore(world.client(link), ROOT)
        link.fates = [fate]
        assert await cookies.write(BOOKIE, COOKIE, None) == 0
        link.fates = [fate]
        assert await cookies.write(BOOKIE, replace(COOKIE, instance_id="i"), 0) == 1
        link.fates = [fate]
        await cookies.delete(BOOKIE, 1)
        assert await cookies.read(BOOKIE) is None
        assert await cookies.bookie_ids() == ()

    run(scenario)


@pytest.mark.parametrize("parent", ["available", "available/readonly"])
def test_the_cookie_of_a_registered_bookie_stays(parent: str) -> None:
    """It may have started since its caller began to look through all ledgers."""

    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        cookies = CookieStore(world.client(), ROOT)
        version = await cookies.write(BOOKIE, COOKIE, None)
        path = f"{ROOT}/{parent}/{BOOKIE}"
        bookie = world.client()
        await bookie.create(path, b"", is_ephemeral=True)
        with pytest.raises(IllegalOperationError, match="expected a stopped bookie"):
            await cookies.delete(BOOKIE, version)
        assert await cookies.read(BOOKIE) == (COOKIE, version)
        await bookie.delete(path)
        await cookies.delete(BOOKIE, version)
        assert await cookies.read(BOOKIE) is None
        assert path not in world.paths()

    run(scenario)


def test_a_stale_cookie_is_not_believed() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        lagging = world.client()
        cookies, others = CookieStore(lagging, ROOT), CookieStore(world.client(), ROOT)
        world.server.freeze(lagging.session_id)
        await others.write(BOOKIE, COOKIE, None)
        assert await cookies.read(BOOKIE) == (COOKIE, 0)

    run(scenario)


# --- which bookie may start------------------------------------------------------------------------


class Bookie:
    """The configuration and the disk of one bookie."""

    def __init__(self, cookies: CookieStore, instance_id: str) -> None:
        self.cookies = cookies
        self.disk: Disk = MemoryDisk()
        self.cookie = replace(COOKIE, instance_id=instance_id)
        self.directories = [JOURNAL, LEDGERS]

    async def start(
        self, *, allow_expansion: bool = False, other_ids: tuple[BookieId, ...] = ()
    ) -> bool:
        return await check_cookies(
            self.cookies,
            self.disk,
            self.cookie,
            self.directories,
            allow_expansion=allow_expansion,
            other_ids=other_ids,
        )

    async def refuses(self, match: str, *, allow_expansion: bool = False) -> None:
        before = self.contents()
        stored = await self.cookies.read(BOOKIE)
        with pytest.raises(BookieStartError, match=match):
            await self.start(allow_expansion=allow_expansion)
        assert self.contents() == before
        assert await self.cookies.read(BOOKIE) == stored

    def contents(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for directory in (JOURNAL, LEDGERS, MORE):
            try:
                names = self.disk.list(directory.path)
            except FileNotFoundError:
                continue
            for name in names:
                path = f"{directory.path}/{name}"
                found[path] = self.disk.read(path)
        return found

    def wipe(self, directory: CookieDirectory) -> None:
        for name in self.disk.list(directory.path):
            self.disk.unlink(f"{directory.path}/{name}")

    def put(self, directory: CookieDirectory, name: str) -> None:
        for depth in (1, 2):
            try:
                self.disk.make_directory("/".join(directory.path.split("/")[:depth]))
            except FileExistsError:
                pass
        self.disk.open(f"{directory.path}/{name}", create=True).close()


async def new_bookie(world: MetadataWorld, link: ScriptedLink | None = None) -> Bookie:
    instance_id = await world.format()
    return Bookie(CookieStore(world.client(link), ROOT), instance_id)


def test_a_new_bookie_is_stamped_and_starts_again() -> None:
    async def scenario(world: MetadataWorld) -> None:
        bookie = await new_bookie(world)
        assert await bookie.start() is True
        stamped = bookie.cookie.to_bytes()
        assert bookie.contents() == {
            f"{directory.path}/{VERSION_FILE}": stamped for directory in (JOURNAL, LEDGERS)
        }
        assert await bookie.cookies.read(BOOKIE) == (bookie.cookie, 0)
        bookie.put(LEDGERS, "00000001.log")
        assert await bookie.start() is False
        assert await bookie.cookies.read(BOOKIE) == (bookie.cookie, 0)

    run(scenario)


def test_directories_of_a_new_bookie_are_empty() -> None:
    async def scenario(world: MetadataWorld) -> None:
        bookie = await new_bookie(world)
        bookie.put(LEDGERS, "00000001.log")
        await bookie.refuses("expected empty directories")

    run(scenario)


@pytest.mark.parametrize("wiped", [[JOURNAL], [LEDGERS], [JOURNAL, LEDGERS]])
@pytest.mark.parametrize("allow_expansion", [False, True])
def test_g5_a_wiped_bookie_does_not_start(
    wiped: list[CookieDirectory], allow_expansion: bool
) -> None:
    async def scenario(world: MetadataWorld) -> None:
        bookie = await new_bookie(world)
        await bookie.start()
        for directory in wiped:
            bookie.wipe(directory)
        match = "known ones to have their cookie" if allow_expansion else "wiped"
        await bookie.refuses(match, allow_expansion=allow_expansion)

    run(scenario)


def test_g5_a_new_disk_under_a_known_id_does_not_start() -> None:
    async def scenario(world: MetadataWorld) -> None:
        bookie = await new_bookie(world)
        await bookie.start()
        bookie.disk = MemoryDisk()
        await bookie.refuses("wiped")

    run(scenario)


def test_a_cookie_that_the_store_lost_stops_the_bookie() -> None:
    async def scenario(world: MetadataWorld) -> None:
        bookie = await new_bookie(world)
        await bookie.start()
        await bookie.cookies.delete(BOOKIE)
        await bookie.refuses("the metadata store has none")

    run(scenario)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"bookie_id": BookieId("127.0.0.1:3182")}, "bookie id"),
        ({"journal_directories": ("/else",)}, "journal directories"),
        ({"ledger_directories": ("/else",)}, "ledger directories"),
        ({"index_directories": ("/else",)}, "index directories"),
        ({"instance_id": "of another cluster"}, "cluster instance"),
        ({"instance_id": None}, "cluster instance"),
    ],
)
def test_a_changed_configuration_does_not_start(change: dict[str, object], match: str) -> None:
    async def scenario(world: MetadataWorld) -> None:
        bookie = await new_bookie(world)
        await bookie.start()
        bookie.cookie = replace(bookie.cookie, **change)  # type: ignore[arg-type]
        await bookie.refuses(match)

    run(scenario)


def test_a_bookie_that_calls_itself_otherwise_does_not_start() -> None:
    async def scenario(world: MetadataWorld) -> None:
        bookie = await new_bookie(world)
        await bookie.start()
        bookie.disk = MemoryDisk()
        bookie.cookie = replace(bookie.cookie, bookie_id=BookieId("host:3181"))
        with pytest.raises(BookieStartError, match="bookie id"):
            await bookie.start(other_ids=(BOOKIE, BookieId("127.0.0.1:3182")))

    run(scenario)


def test_a_damaged_cookie_names_its_file() -> None:
    async def scenario(world: MetadataWorld) -> None:
        bookie = await new_bookie(world)
        await bookie.start()
        bookie.disk.open(f"{LEDGERS.path}/{VERSION_FILE}").write_at(0, b"x")
        with pytest.raises(CorruptFileError, match="ledgers/current/VERSION"):
            await bookie.start()

    run(scenario)


def expanded(bookie: Bookie) -> None:
    more = (*bookie.cookie.ledger_directories, MORE.name)
    bookie.cookie = replace(bookie.cookie, ledger_directories=more)
    bookie.directories.append(MORE)


def test_storage_expansion_must_be_allowed_and_its_directories_empty() -> None:
    async def scenario(world: MetadataWorld) -> None:
        bookie = await new_bookie(world)
        await bookie.start()
        expanded(bookie)
        await bookie.refuses("ledger directories")
        bookie.put(MORE, "00000001.log")
        await bookie.refuses("not empty", allow_expansion=True)
        bookie.wipe(MORE)
        assert await bookie.start(allow_expansion=True) is False
        assert await bookie.cookies.read(BOOKIE) == (bookie.cookie, 1)
        assert set(bookie.contents().values()) == {bookie.cookie.to_bytes()}
        assert len(bookie.contents()) == 3
        assert await bookie.start() is False

    run(scenario)


def test_an_expansion_that_was_interrupted_goes_on() -> None:
    async def scenario(world: MetadataWorld) -> None:
        link = ScriptedLink()
        bookie = await new_bookie(world, link)
        await bookie.start()
        expanded(bookie)
        link.fate_of = lambda path, is_write: Fate.LOSE_REQUEST if is_write else Fate.ANSWERED
        starting = asyncio.ensure_future(bookie.start(allow_expansion=True))
        await asyncio.sleep(1)
        starting.cancel()
        await asyncio.wait([starting])
        link.fate_of = lambda path, is_write: Fate.ANSWERED
        assert len(bookie.contents()) == 3
        assert await bookie.cookies.read(BOOKIE) != (bookie.cookie, 0)
        assert await bookie.start(allow_expansion=True) is False
        assert await bookie.start() is False

    run(scenario)


def test_two_new_bookies_of_one_id_and_one_starts() -> None:
    async def scenario(world: MetadataWorld) -> None:
        one = await new_bookie(world)
        two = Bookie(CookieStore(world.client(), ROOT), one.cookie.instance_id or "")
        results = await asyncio.gather(one.start(), two.start(), return_exceptions=True)
        assert results.count(True) == 1
        assert [type(result) for result in results if result is not True] == [BookieStartError]

    run(scenario)
