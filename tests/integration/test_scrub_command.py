"""A real bookie whose entry log was damaged: `bookie scrub` finds it, and a copy mends it."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bookie.admin.zookeeper_process import ZooKeeperProcess
from bookie.hosting import INDEX_FILE
from bookie.server.storage.entry_log import split_location
from bookie.server.storage.lmdb_index import LmdbIndex
from tests.fixtures.bookie_processes import (
    client_of,
    in_loop,
    new_cluster,
    our_bookies,
    registered,
)
from tests.fixtures.ports import own_port
from tests.fixtures.zookeeper import zookeeper, zookeeper_root

__all__ = ["zookeeper", "zookeeper_root"]

pytestmark = pytest.mark.integration
TOKEN = "a-token-of-an-operator"
DAMAGED = (3, 77)
LOOKS = 600


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "bookie.admin.commands", "scrub", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_bookie_with_disks_of_its_own_starts_again_after_an_orderly_stop(
    zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path
) -> None:
    cluster = new_cluster(zookeeper, zookeeper_root)
    options = ("--journal", str(tmp_path / "j"), "--ledgers", str(tmp_path / "l"))
    with our_bookies(cluster, tmp_path, 1, options=options) as bookies:
        (bookie,) = bookies
        bookie.close()
        assert (bookie.directory / "SCRUB").exists()
        bookie.start()
        registered(cluster, bookies)


@pytest.mark.long
def test_damage_is_found_offline_and_mended_by_the_running_bookie(
    zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path
) -> None:
    cluster = new_cluster(zookeeper, zookeeper_root)
    access = tmp_path / "access.txt"
    access.write_text(f"admin token {TOKEN}\n")
    access.chmod(0o600)
    port = own_port()
    with our_bookies(cluster, tmp_path, 2) as bookies:

        async def write() -> int:
            async with client_of(cluster) as client:
                writer = await client.create_ledger(2, 2, 2)
                await asyncio.gather(*(writer.add(b"entry %d" % n) for n in range(100)))
                await writer.close()
                return writer.ledger_id

        ledger_id = in_loop(write)
        hurt, sound = bookies
        hurt.close()
        directory = str(hurt.directory)
        assert command("check", directory).returncode == 0
        index = LmdbIndex(f"{directory}/{INDEX_FILE}")
        for entry_id in DAMAGED:
            location = index.get(ledger_id, entry_id)
            assert location is not None
            number, offset = split_location(location)
            path = hurt.directory / "entries" / f"{number:08d}.log"
            content = bytearray(path.read_bytes())
            content[offset + 40] ^= 1
            path.write_bytes(content)
        index.close()
        found = command("check", directory, "--json")
        assert found.returncode == 1, found.stderr
        *damage, summary = map(json.loads, found.stdout.splitlines())
        assert [one["entry_id"] for one in damage] == list(DAMAGED)
        assert summary["damaged"] == 2

        hurt.start("--http-port", str(port), "--http-access", str(access))
        registered(cluster, bookies)
        url = f"http://127.0.0.1:{port}"
        assert command("start", url).returncode == 1  # without the token
        assert command("start", url, "--token", TOKEN).returncode == 0
        status: dict[str, Any] = {}
        for _ in range(LOOKS):
            status = json.loads(command("status", url, "--token", TOKEN, "--json").stdout)
            if status["passes"]:
                break
        assert (status["damaged"], status["mended"]) == (2, 2), status
        assert status["bad_ledgers"] == []
        assert "2 entries were damaged or missing here" in hurt.log.read_text()
        sound.close()

        async def read() -> list[bytes]:
            async with client_of(cluster) as client:
                reader = await client.open(ledger_id)
                return [bytes(entry.payload) for entry in await reader.read(0, 99)]

        assert in_loop(read) == [b"entry %d" % n for n in range(100)]
