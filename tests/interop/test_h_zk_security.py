"""(h) Apache with its own zkEnableSecurity in one cluster with ours: users by SASL (DIGEST-MD5).

Bookies, client and shell of Apache log in by a JAAS file, ours by the same user's line; every node
that either makes is for that user alone, and the other works with it. An open cluster of Apache's
bookies is moved to secured nodes by `bookie acl set`, and back.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bookie.admin.app import app
from bookie.admin.world import Cluster
from bookie.admin.zookeeper_process import ZooKeeperProcess
from bookie.client.client import LedgerClient
from bookie.metadata.acl_walk import Deviation, find_deviations
from bookie.metadata.zookeeper_login import parse_logins
from tests.fixtures.bookie_processes import client_of, in_loop, our_bookies, registered
from tests.fixtures.sasl_zookeeper import LOGIN_LINE, jaas_options, sasl_zookeeper, write_jaas
from tests.interop import apache
from tests.interop.apache import SMALL_JVM, Release, apache_bookies, run_program, shell

SECURED = "zkEnableSecurity=true\n"
OPEN_BY_APACHE = ("/idgen-long", "/underreplication/lostBookieRecoveryDelay")
"""Nodes that Apache's own code makes open all the same (LongZkLedgerIdGenerator and others)."""


class Place:
    """A ZooKeeper with users, a cluster of ours, and what both sides log in with."""

    def __init__(self, zookeeper: ZooKeeperProcess, folder: Path) -> None:
        self.folder = folder
        self.jvm = (*SMALL_JVM, *jaas_options(write_jaas(folder)))
        self.login = folder / "login"
        self.login.write_text(LOGIN_LINE)
        self.login.chmod(0o600)
        self.open_cluster = Cluster(zookeeper.hosts, f"/ledgers-{folder.name}")
        self.cluster = replace(self.open_cluster, logins=parse_logins(LOGIN_LINE, "line"))
        self.conf = folder / "shell.conf"
        self.conf.write_text(
            apache.server_conf(zookeeper.hosts, folder / "none", 3181, root=self.cluster.root)
            + SECURED
        )

    def bookie(self, *words: str, logs_in: bool = True, code: int = 0) -> Any:
        """Run a command of ours; return its exit as click tells it."""
        names = ["--zookeeper", self.cluster.zookeeper, "--root", self.cluster.root]
        if logs_in:
            names += ["--zookeeper-login", str(self.login)]
        result = CliRunner().invoke(app, [*words, *names])
        assert result.exit_code == code, (result.output, result.exception)
        return result

    def shell(self, release: Release, *words: str) -> str:
        return shell(release, self.conf, *words, jvm=self.jvm)

    def program(self, release: Release, main: str, *, secured: int = 1, **more: object) -> Any:
        return run_program(
            release, main, jvm=self.jvm, uri=self.cluster.uri, secured=secured, password="secret",
            **more,
        )  # fmt: skip

    @contextmanager
    def bookies(self, release: Release, ours: int, theirs: int, *, secured: bool) -> Iterator[None]:
        """Run bookies of both kinds that log in."""
        options = ("--zookeeper-login", str(self.login))
        options += ("--zk-enable-security",) if secured else ()
        with (
            our_bookies(self.cluster, self.folder, ours, options=options),
            apache_bookies(
                release, self.cluster.zookeeper, self.folder, theirs, root=self.cluster.root,
                jvm=self.jvm, more=SECURED if secured else "",
            ) as started,
        ):  # fmt: skip
            registered(self.cluster, started)
            yield

    def deviations(self) -> list[Deviation]:
        """Return the nodes that are not for the user alone, but for those of Apache's own code."""
        found: list[Deviation] = []

        async def look() -> None:
            async with self.cluster.session() as store:
                await find_deviations(
                    store, self.cluster.root, store.access.secured_acl, found.append
                )

        in_loop(look)
        return [
            each for each in found
            if not each.path.removeprefix(self.cluster.root).startswith(OPEN_BY_APACHE)
        ]  # fmt: skip


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    with sasl_zookeeper(tmp_path_factory.mktemp("users")) as server:
        yield server


@pytest.fixture
def place(users: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(users, tmp_path_factory.mktemp("place"))


def read_and_write(place: Place, release: Release, *, secured: int = 1) -> None:
    """Let each side read what the other wrote, over bookies of both."""
    cluster = replace(place.cluster, is_secured=bool(secured))
    written = place.program(release, "Writer", secured=secured, count=50, size=1000)
    assert written[-1] == {"closed": 49, "length": 50_000}

    async def ours() -> int:
        async with client_of(cluster) as client:
            return await _both_ways(client, written[0]["ledger"])

    ledger_id = in_loop(ours)
    _, read = place.program(release, "Reader", secured=secured, ledger=ledger_id)
    assert read == {"read": 20, "bytes": 200, "wrong": 20}  # payloads of ours are others


async def _both_ways(client: LedgerClient, ledger_id: int) -> int:
    reader = await client.open(ledger_id, b"secret")
    assert len(await reader.read(0, 49)) == 50
    await reader.close()
    writer = await client.create_ledger(3, 3, 2, password=b"secret")
    for n in range(20):
        await writer.add(b"%010d" % n)
    await writer.close()
    return writer.ledger_id


def test_ours_and_apaches_in_one_secured_cluster(place: Place, release: Release) -> None:
    place.bookie("format", "--zk-enable-security")
    with place.bookies(release, 2, 1, secured=True):
        read_and_write(place, release)
        printed = place.shell(
            release, "simpletest", "-ensemble", "3", "-writeQuorum", "3", "-ackQuorum", "2",
            "-numEntries", "20",
        )  # fmt: skip
        assert "20 entries written" in printed
        assert place.shell(release, "listbookies", "-rw").count("127.0.0.1:") >= 3
        assert place.deviations() == []
        refused = place.bookie("ledger", "list", logs_in=False, code=1)
        assert "log in as the user" in refused.stderr
        # Apache's client without the login meets the same wall.
        uri = place.cluster.uri
        assert run_program(release, "Writer", uri=uri, password="secret", count=1) == []


def test_apaches_shell_makes_a_secured_cluster_for_ours(place: Place, current: Release) -> None:
    place.shell(current, "initnewcluster")
    assert place.deviations() == []
    with place.bookies(current, 3, 0, secured=True):
        read_and_write(place, current)
        assert place.deviations() == []


def test_a_running_cluster_of_both_is_moved_and_back(place: Place, current: Release) -> None:
    place.bookie("format")
    with place.bookies(current, 2, 1, secured=False):
        read_and_write(place, current, secured=0)
        # Apache's bookies do not say whether they have the login.
        refused = place.bookie("acl", "set", "secured", "--yes", code=1).stderr
        assert refused.count("127.0.0.1:") == 1
        place.bookie("acl", "set", "secured", "--yes", "--unchecked")
        assert place.deviations() == []
        read_and_write(place, current, secured=1)
        assert place.deviations() == []
        place.bookie("ledger", "list", logs_in=False, code=1)
        place.bookie("acl", "set", "open", "--yes")
        place.bookie("ledger", "list", logs_in=False)
        found = json.loads(place.bookie("acl", "show", "--expect", "open", "--json").stdout)
        assert found["deviating"] == 0
        read_and_write(place, current, secured=0)
