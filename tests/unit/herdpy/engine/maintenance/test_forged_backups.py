"""Forged backups: right checksums, wrong content. Refused, or a database."""

import random
from typing import Any

import msgspec
import pytest

from herdpy.engine.maintenance.restore import verify_backup
from herdpy.errors import CorruptionError
from herdpy.storage.backup_file import BackupHead, read_backup, write_blocks
from herdpy.storage.manifest import ManifestState
from tests.fixtures.backups import backed_up, restored
from tests.fixtures.engines import Engine, engine, rows, run
from tests.sim.disk import SimulatedDisk

_VALUES: list[Any] = [
    0, 1, -1, 2, 7, 2**31, 2**63 - 1, -(2**63), 2**64 - 1, None, True, 0.5, "",
    "../../etc/passwd", "/x", b"", b"\0" * 9, b"\xff" * 40, [], [[]], {}, {"a": 1},
]  # fmt: skip


def made() -> bytes:
    db = Engine(disk=SimulatedDisk(1))
    session, other = db.session(autocommit=True), db.session()
    run(session, "CREATE TABLE t (id TEXT PRIMARY KEY, v DECIMAL(30,2) DEFAULT 1.5, d DATE)")
    run(session, "CREATE TABLE n (id BIGINT PRIMARY KEY, b BOOLEAN NOT NULL)")
    for turn in range(2):
        data = [(f"{turn}-{i}", turn * 10**20) for i in range(30)]
        session.execute_many("INSERT INTO t (id, v) VALUES (?, ?)", data)
        run(session, "DELETE FROM t WHERE id LIKE '0-1%'")
        run(session, "INSERT INTO n VALUES (?, TRUE)", turn)
        db.database.run_checkpoint()
    run(session, "CREATE USER bob PASSWORD 'a password of bob'")
    run(session, "GRANT SELECT ON n TO bob")
    run(other, "INSERT INTO n VALUES (9, FALSE)")
    run(other, "CREATE TABLE later (id BIGINT PRIMARY KEY)")
    data = backed_up(db.database)
    db.database.close()
    return data


def rebuilt(data: bytes, plain: Any) -> bytes:
    """Return the backup with another head, and all checksums right."""
    content = read_backup(memoryview(data), "b")
    stand_in = BackupHead(b"", 0, "", ManifestState(b""))
    segments = [
        (number, lambda item=item: item.view) for number, item in sorted(content.segments.items())
    ]
    encode = msgspec.msgpack.encode
    try:
        msgspec.msgpack.encode = lambda value: encode(plain if value is stand_in else value)
        return b"".join(write_blocks(stand_in, segments))
    finally:
        msgspec.msgpack.encode = encode


def mutate(rng: random.Random, value: Any) -> Any:
    """Return a copy in which one thing, somewhere, is something else."""
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        kind = rng.random()
        if kind < 0.8:
            return [*value[:place], mutate(rng, value[place]), *value[place + 1 :]]
        return [*value[:place], *value[place + 1 :]] if kind < 0.9 else [*value, value[place]]
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.8:
            return {**value, key: mutate(rng, value[key])}
        return {rng.choice([0, -1, 5, 2**40, "../x"]): value[key], **value}
    if isinstance(value, bytes) and len(value) > 20 and rng.random() < 0.9:
        try:  # the engine's part is msgpack in msgpack
            inner = msgspec.msgpack.decode(value, strict=False)
        except msgspec.MsgspecError:
            return value[: rng.randrange(len(value))]
        return msgspec.msgpack.encode(mutate(rng, inner))
    if isinstance(value, int) and rng.random() < 0.3:
        return value + rng.choice([-1, 1, 64, -64])
    return rng.choice(_VALUES)


def test_a_made_up_head_is_refused_or_a_database() -> None:
    data = made()
    head = read_backup(memoryview(data), "b").head
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(head), strict=False)
    assert read_backup(memoryview(rebuilt(data, plain)), "b").head == head
    verify_backup(memoryview(data), "b")
    rng = random.Random(1)
    refused = fine = 0
    for turn in range(400):
        fake = rebuilt(data, mutate(rng, plain))
        try:
            verify_backup(memoryview(fake), "b")
        except CorruptionError:
            refused += 1
            continue
        disk = SimulatedDisk(turn)
        restored(fake, disk)
        assert disk.list("") == ["FORMAT", "LOCK", "default"]
        assert disk.list("default") == ["MANIFEST", "log", "segments", "temp"]
        with engine(disk=disk) as db:
            session = db.session(autocommit=True)
            for name in [table.name for table in session.tables()]:
                escaped = name.replace('"', '""')
                rows(session, f'SELECT * FROM "{escaped}"')
        fine += 1
    assert refused > 200
    assert fine > 30


@pytest.mark.parametrize(
    "change",
    [
        {"segments": {-1: 100}},
        {"segments": {0: 100}},
        {"segments": {10**9: 100}},
        {"log_files": ((1, 1),)},
        {"next_segment": 1},
    ],
)
def test_files_that_a_backup_cannot_have(change: dict[str, Any]) -> None:
    data = made()
    head = read_backup(memoryview(data), "b").head
    if "segments" in change:
        change = {"segments": {**head.state.segments, **change["segments"]}}
    state = msgspec.structs.replace(head.state, **change)
    plain = msgspec.structs.replace(head, state=state)
    with pytest.raises(CorruptionError, match="its state contradicts itself"):
        verify_backup(memoryview(rebuilt(data, plain)), "b")
