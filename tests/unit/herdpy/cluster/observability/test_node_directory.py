"""The doctor of a node's directory: whose it is, what each copy needs of its log, all damage."""

import pytest

from bookie.runtime.memory_disk import MemoryDisk
from herdpy.cluster.node_identity import FILE
from herdpy.cluster.observability.node_directory import examine_node
from herdpy.cluster.part import State
from herdpy.engine.maintenance.doctor import Report
from herdpy.errors import Error
from herdpy.model.lsn import Lsn
from herdpy.model.settings import Settings
from tests.fixtures.cluster_nodes import Disks
from tests.fixtures.engines import Engine, run
from tests.fixtures.node_cluster import CLUSTER, NodeCluster

ID, OTHER = "1" * 32, "2" * 32


@pytest.fixture(scope="module")
def position_and_disks() -> tuple[Lsn, Disks]:
    """Give the directory of a node that has written two checkpoints, and where the last one is."""
    cluster, disks = NodeCluster(), Disks()
    try:
        cluster.create("sales", "n1", tablespace_id=ID)
        node = cluster.node("n1", disks)
        cluster.until(lambda: node.parts == {"sales": State.LEADING})
        database = cluster.served["n1"][0].copy.database
        assert database is not None
        session = database.session(Settings(), autocommit=True)
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        for key in range(200):
            run(session, "INSERT INTO t VALUES (?, ?)", key, "x" * 30)
        session.close()
        database.run_checkpoint()
        position = database.tablespace.state.lsn
    finally:
        cluster.close()
    return position, disks


@pytest.fixture
def disks(position_and_disks: tuple[Lsn, Disks]) -> Disks:
    """Give a copy of that directory."""
    found = Disks()
    for folder, disk in position_and_disks[1].folders.items():
        found.folders[folder] = _copied(disk)
    found.folders[""].make_directory(ID)
    return found


def _copied(disk: MemoryDisk) -> MemoryDisk:
    made = MemoryDisk()

    def copy(folder: str) -> None:
        for name in disk.list(folder):
            path = f"{folder}/{name}".lstrip("/")
            if disk.is_file(path):
                _write(made, path, disk.read(path))
            else:
                made.make_directory(path)
                copy(path)

    copy("")
    return made


def _write(disk: MemoryDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.write_at(0, data)
    file.close()


def _examine(disks: Disks) -> Report:
    before = {folder: _files(disk) for folder, disk in disks.folders.items()}
    report = examine_node(disks.folders[""], disks.folders.__getitem__, "/data")
    assert {folder: _files(disk) for folder, disk in disks.folders.items()} == before
    return report


def _files(disk: MemoryDisk, folder: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in disk.list(folder):
        path = f"{folder}/{name}".lstrip("/")
        found |= {path: disk.read(path)} if disk.is_file(path) else _files(disk, path)
    return found


def test_a_sound_directory(position_and_disks: tuple[Lsn, Disks], disks: Disks) -> None:
    report = _examine(disks)
    assert report.damages == report.notes == report.advice == []
    assert report.node == f"node n1 of cluster {CLUSTER}"
    assert (report.table_count, report.row_count, report.log_record_count) == (1, 200, 0)
    (copy,) = report.tablespaces
    assert (copy.name, copy.folder, copy.table_count) == (ID, f"{ID}/default", 1)
    assert copy.needs_log_from == position_and_disks[0]
    assert position_and_disks[0].ledger_id >= 0


def test_what_is_no_file_of_a_node_and_a_folder_that_is_empty_are_noted(disks: Disks) -> None:
    root = disks.folders[""]
    _write(root, "notes.txt", b"mine")
    root.make_directory(OTHER)
    disks.folders[OTHER] = MemoryDisk()
    report = _examine(disks)
    assert report.damages == []
    assert sorted(report.notes) == [
        f"{OTHER}/ is empty: the node fills it from the log",
        "notes.txt is no file of a node",
    ]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"{", "expected a node's identity"),
        (b'{"format":9,"id":"n1","cluster":"c"}', "it has format 9, and this herdpy reads 1"),
        (b'{"format":1,"id":"n1"}', "expected a node's identity"),
    ],
)
def test_an_identity_that_cannot_be_read_is_damage_and_the_copies_are_looked_at(
    disks: Disks, data: bytes, text: str
) -> None:
    root = disks.folders[""]
    root.unlink(FILE)
    _write(root, FILE, data)
    report = _examine(disks)
    (damage,) = report.damages
    assert damage.startswith(f"/data/{FILE}: ")
    assert text in damage
    assert report.row_count == 200


def test_damage_in_a_copy_is_named_with_its_folder(disks: Disks) -> None:
    copy = disks.folders[ID]
    (segment,) = [path for path in _files(copy) if path.endswith(".segment")]
    data = bytearray(copy.read(segment))
    data[len(data) // 2] ^= 1
    _write(copy, segment, bytes(data))
    report = _examine(disks)
    assert report.damages
    assert all(each.startswith(f"{ID}: ") and segment in each for each in report.damages)
    _write(copy, "default/MANIFEST", b"x" * 10)
    assert any("MANIFEST" in each for each in _examine(disks).damages)


def test_a_database_of_its_own_in_a_copy_s_place_is_damage(disks: Disks) -> None:
    alone = Engine(disk=MemoryDisk())
    disk = alone.disk
    alone.database.close()
    assert isinstance(disk, MemoryDisk)
    disks.folders[ID] = disk
    (damage,) = _examine(disks).damages
    assert "found a database of its own" in damage


def test_a_node_does_not_start_on_what_the_doctor_calls_damaged(disks: Disks) -> None:
    root = disks.folders[""]
    root.unlink(FILE)
    _write(root, FILE, b'{"format":9,"id":"n1","cluster":"c"}')
    cluster = NodeCluster()
    try:
        with pytest.raises(Error) as caught:
            cluster.node("n1", disks)
        assert caught.value.sqlstate == "0A000"
    finally:
        cluster.close()
