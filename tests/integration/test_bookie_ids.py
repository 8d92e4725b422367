"""Every command that takes the id of a bookie or a ledger, and ids that are none there.

Each is refused with a sentence and an exit code, and ZooKeeper is as it was before.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner, Result

from bookie.admin.app import app
from bookie.admin.ids import BOOKIE_ID, LEDGER_ID
from bookie.admin.zookeeper_process import ZooKeeperProcess
from bookie.ledger.types import BookieId, EntryId, LedgerId, LedgerMetadata, LedgerState, Segment
from bookie.lifecycle.states import Step
from bookie.lifecycle.store import LifecycleStore
from bookie.metadata.cookies import Cookie, CookieStore
from bookie.metadata.ledgers import LedgerManager
from bookie.metadata.zookeeper import ZooKeeperStore
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_executors import run
from bookie.runtime.os_rng import OsRng
from tests.fixtures.zookeeper import zookeeper, zookeeper_root

pytestmark = pytest.mark.integration

__all__ = ["zookeeper", "zookeeper_root"]

KNOWN = BookieId("127.0.0.1:3181")
FAILED = BookieId("127.0.0.1:3182")
"""Its drain has failed."""
COOKIE = '5\nbookieHost: "{}"\njournalDir: "/j"\nledgerDirs: "1\\t/l"\n'
BASE = {
    "ledger metadata": ["LEDGER"],
    "ledger read": ["LEDGER"],
    "ledger recover": ["LEDGER"],
    "ledger delete": ["LEDGER", "--yes"],
    "bookies recover": ["BOOKIE", "--yes"],
    "bookies decommission": ["BOOKIE"],
    "bookies drain": ["BOOKIE"],
    "bookies cancel": ["BOOKIE"],
    "bookies status": ["BOOKIE"],
    "bookies mark-drained": ["BOOKIE"],
    "bookies remove": ["BOOKIE", "--yes"],
    "bookies at-risk": ["BOOKIE"],
    "cookie get": ["BOOKIE"],
    "cookie generate": ["BOOKIE"],
    "cookie create": ["BOOKIE", "cookie.txt"],
    "cookie update": ["BOOKIE", "cookie.txt"],
    "cookie delete": ["BOOKIE", "--yes"],
    "replication under-replicated": [],
    "inspect journal": ["."],
    "inspect entry-log": ["."],
    "inspect index": ["."],
}
"""What each command has to be given, with ids that are there in the places of BOOKIE and LEDGER."""
NEW_IDS = ("cookie generate", "cookie create")
"""They are for bookies that are not known yet."""
BAD = {
    "BOOKIE": {"unknown": "127.0.0.1:3199", "malformed": "a b/c", "empty": "", "reserved": ".."},
    "LEDGER": {"unknown": "987654", "malformed": "7x", "empty": "", "too large": str(2**63)},
}


class Taking(NamedTuple):
    """A command with a parameter that takes an id."""

    path: str
    kind: str
    option: str
    """Empty: an argument."""
    is_repeatable: bool


def taking() -> Iterator[Taking]:
    def walk(command: click.Command, path: str) -> Iterator[Taking]:
        if isinstance(command, click.Group):
            for name, child in command.commands.items():
                yield from walk(child, f"{path} {name}".strip())
            return
        for one in command.params:
            kind = "BOOKIE" if one.type is BOOKIE_ID else "LEDGER"
            if one.type in (BOOKIE_ID, LEDGER_ID):
                option = one.opts[0] if isinstance(one, click.Option) else ""
                yield Taking(path, kind, option, one.multiple if option else one.nargs == -1)

    return walk(app, "")


CASES = [
    (one, what)
    for one in taking()
    for what in (*BAD[one.kind], "duplicate")
    if (what != "duplicate" or one.is_repeatable)
    and not (what == "unknown" and (one.path in NEW_IDS or one.path.startswith("inspect")))
]


class Cluster:
    """Metadata of a stopped bookie and of a ledger on it; tests run commands on it."""

    def __init__(self, hosts: str, root: str) -> None:
        self.hosts = hosts
        self.root = root

    def make(self) -> int:
        assert self.invoke("format").exit_code == 0

        async def write() -> int:
            async with asyncio.timeout(60):
                store = await ZooKeeperStore.connect(self.hosts, 10.0)
                try:
                    for bookie_id in (KNOWN, FAILED):
                        cookie = Cookie.from_bytes(COOKIE.format(bookie_id).encode(), "")
                        await CookieStore(store, self.root).write(bookie_id, cookie, None)
                    states = LifecycleStore(store, self.root)
                    for step in (Step.DRAIN, Step.FAIL):
                        await states.move(FAILED, step, lambda record: record)
                    segment = Segment(EntryId(0), (KNOWN,))
                    made = LedgerMetadata(
                        ledger_id=LedgerId(-1),
                        ensemble_size=1,
                        write_quorum_size=1,
                        ack_quorum_size=1,
                        segments=(segment,),
                        state=LedgerState.CLOSED,
                    )
                    manager = LedgerManager(store, self.root, OsRng(), OsClock())
                    return (await manager.create(made))[0].ledger_id
                finally:
                    await store.close()

        return run(write())

    def invoke(self, *arguments: str) -> Result:
        options = ["--zookeeper", self.hosts, "--root", self.root]
        if arguments[0] == "inspect":
            options = []
        return CliRunner().invoke(app, [*arguments, *options])

    def nodes(self) -> dict[str, tuple[bytes, int]]:
        """Return all that is stored, with versions."""

        async def read() -> dict[str, tuple[bytes, int]]:
            found: dict[str, tuple[bytes, int]] = {}
            store = await ZooKeeperStore.connect(self.hosts, 10.0)
            try:
                left = [self.root]
                while left:
                    path = left.pop()
                    data, stat = await store.read(path)
                    found[path] = data, stat.version
                    left += [f"{path}/{name}" for name in await store.children(path)]
            finally:
                await store.close()
            return found

        return run(read())


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess) -> tuple[Cluster, int]:
    made = Cluster(zookeeper.hosts, "/test-ids")
    return made, made.make()


@pytest.mark.parametrize(
    ("one", "what"),
    CASES,
    ids=[f"{one.path} {one.option or one.kind} {what}" for one, what in CASES],
)
def test_an_id_that_is_none_is_refused(
    cluster: tuple[Cluster, int],
    one: Taking,
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, ledger_id = cluster
    monkeypatch.chdir(tmp_path)
    for folder in ("journal", "entries"):
        (tmp_path / folder).mkdir()
    (tmp_path / "cookie.txt").write_text(COOKIE.format(KNOWN))
    known = FAILED if one.path == "bookies mark-drained" else KNOWN
    good = {"BOOKIE": known, "LEDGER": str(ledger_id)}
    text = good[one.kind] if what == "duplicate" else BAD[one.kind][what]
    base = [good.get(word, word) for word in BASE[one.path]]
    if one.option:
        given = [one.option, text] * (2 if what == "duplicate" else 1)
        arguments = [*base, *given]
    else:
        place = BASE[one.path].index(one.kind)
        arguments = [
            *base[:place],
            *([text] * (2 if what == "duplicate" else 1)),
            *base[place + 1 :],
        ]
    before = made.nodes()
    result = made.invoke(*one.path.split(), *arguments)
    assert result.exit_code in (1, 2), result.output
    assert isinstance(result.exception, SystemExit)
    assert "rror: " in result.stderr
    assert text in result.stderr
    if what == "unknown" and one.kind == "BOOKIE" and one.option != "--to":
        assert KNOWN in result.stderr, "the known ones are named"
    assert made.nodes() == before


def test_every_command_with_an_id_is_in_the_table() -> None:
    assert {one.path for one in taking()} == {*BASE}
    # Whatever is called so takes an id, and is checked as one.
    named = {"bookie_id", "bookie_ids", "ledger", "ledger_id", "ledger_ids", "missing", "accepted"}

    def walk(command: click.Command, path: str) -> Iterator[str]:
        if isinstance(command, click.Group):
            for name, child in command.commands.items():
                yield from walk(child, f"{path} {name}")
            return
        for one in command.params:
            if one.name in named and one.type not in (BOOKIE_ID, LEDGER_ID):
                yield f"{path} {one.name}"

    assert list(walk(app, "bookie")) == ["bookie serve bookie_id"]


@pytest.mark.parametrize("text", ["a b", "", ".."])
def test_a_bookie_of_no_id_does_not_start(
    cluster: tuple[Cluster, int], text: str, tmp_path: Path
) -> None:
    made, _ = cluster
    before = made.nodes()
    result = made.invoke("serve", "--data", str(tmp_path / "data"), "--bookie-id", text)
    assert result.exit_code in (1, 2), result.output
    assert isinstance(result.exception, SystemExit)
    assert made.nodes() == before


def test_what_is_there_is_taken(cluster: tuple[Cluster, int]) -> None:
    made, ledger_id = cluster
    for arguments in (
        ("bookies", "status", KNOWN),
        ("bookies", "at-risk", KNOWN),
        ("bookies", "recover", KNOWN, "--dry-run", "--ledger", str(ledger_id)),
        ("cookie", "get", KNOWN),
        ("ledger", "metadata", str(ledger_id)),
        ("replication", "under-replicated", "--missing", KNOWN),
    ):
        result = made.invoke(*arguments)
        assert result.exit_code == 0, result.output
