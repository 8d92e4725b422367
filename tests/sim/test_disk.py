"""SimulatedDisk: what was synced is there after a crash; the rest is sometimes lost or torn."""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from herdpy.aio.switching import can_wait, wait_for
from tests.sim.disk import KINDS, SECTOR_BYTES, SimulatedCrash, SimulatedDisk
from tests.sim.loop import SimulatedLoop
from tests.sim.switching import in_thread

SEEDS = range(1000)


def outcomes(prepare: Callable[[SimulatedDisk], object], look: Callable[[SimulatedDisk], object]):
    """Return how often each look came out over all seeds of one crash."""
    disk = SimulatedDisk(1)
    prepare(disk)
    disk.crash()
    return Counter(look(disk.restart(seed)) for seed in SEEDS)


def put(disk: SimulatedDisk, path: str, data: bytes, *, sync: bool = False) -> None:
    file = disk.open(path, create=True)
    file.write_at(0, data)
    if sync:
        file.sync()
        disk.sync_directory(path.rpartition("/")[0])
    file.close()


def content(path: str) -> Callable[[SimulatedDisk], bytes | None]:
    return lambda disk: disk.read(path) if disk.exists(path) else None


def test_synced_survives_every_crash() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.make_directory("d")
        disk.sync_directory("")
        put(disk, "d/f", b"a" * 5000, sync=True)
        file = disk.open("d/f")
        file.write_at(10, b"b" * 2000)
        file.truncate(6000)
        file.sync()
        put(disk, "d/other", b"unsynced")

    expected = b"a" * 10 + b"b" * 2000 + b"a" * 2990 + bytes(1000)
    assert outcomes(prepare, content("d/f")) == {expected: 1000}


def test_unsynced_writes_are_kept_lost_and_torn() -> None:
    old, new = b"o" * 4096, b"n" * 4096

    def prepare(disk: SimulatedDisk) -> None:
        put(disk, "f", old, sync=True)
        disk.open("f").write_at(0, new)

    found = outcomes(prepare, content("f"))
    assert found[old] > 100
    assert found[new] > 100
    torn = [data for data in found if data not in (old, new)]
    assert len(torn) > 100
    assert all(len(data) == 4096 and set(data) <= set(b"on") for data in torn)
    boundaries = [data.find(b"n" if data[:1] == b"o" else b"o") for data in torn]
    assert any(at % SECTOR_BYTES for at in boundaries)  # torn inside a sector
    assert sum(at % SECTOR_BYTES == 0 for at in boundaries) > 50
    holes = [data for data in torn if b"ono" in _runs(data) and b"non" in _runs(data)]
    assert holes  # later sectors without earlier ones


def _runs(data: bytes) -> bytes:
    return bytes(b for i, b in enumerate(data) if i == 0 or data[i - 1] != b)


def test_of_two_unsynced_writes_each_may_survive_alone() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        put(disk, "f", b"........", sync=True)
        file = disk.open("f")
        file.write_at(0, b"aa")
        file.write_at(6, b"bb")

    found = outcomes(prepare, content("f"))
    for expected in (b"........", b"aa....bb", b"aa......", b"......bb"):
        assert found[expected] > 20, expected


def test_a_later_write_over_an_earlier_one() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        put(disk, "f", b"0", sync=True)
        file = disk.open("f")
        file.write_at(0, b"1")
        file.write_at(0, b"2")

    assert set(outcomes(prepare, content("f"))) == {b"0", b"1", b"2"}


def test_the_length_may_survive_without_the_bytes() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        put(disk, "f", b"start", sync=True)
        disk.open("f").write_at(5, b"more")

    found = outcomes(prepare, content("f"))
    assert found[b"start"] > 50
    assert found[b"startmore"] > 50
    assert found[b"start\0\0\0\0"] > 20
    assert all(data.startswith(b"start") for data in found)


def test_an_unsynced_truncation_is_kept_or_lost() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        put(disk, "f", b"abcdef", sync=True)
        disk.open("f").truncate(2)

    assert set(outcomes(prepare, content("f"))) == {b"abcdef", b"ab"}


def test_an_unsynced_creation_vanishes_though_its_data_was_synced() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("f", create=True)
        file.write_at(0, b"abc")
        file.sync()

    found = outcomes(prepare, content("f"))
    assert set(found) == {None, b"abc"}
    assert min(found.values()) > 200


def test_a_synced_name_without_synced_data() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.open("f", create=True).write_at(0, b"abc")
        disk.sync_directory("")

    found = outcomes(prepare, content("f"))
    assert None not in found
    assert found[b""] > 100
    assert found[b"abc"] > 100


def test_a_file_vanishes_with_its_unsynced_directory() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.make_directory("d")
        put(disk, "d/f", b"abc", sync=True)

    found = outcomes(prepare, lambda disk: (disk.exists("d"), content("d/f")(disk)))
    assert set(found) == {(False, None), (True, b"abc")}


def test_a_rename_is_atomic() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        put(disk, "f", b"old", sync=True)
        put(disk, "f.new", b"new", sync=True)
        disk.rename("f.new", "f")

    found = outcomes(prepare, lambda disk: (content("f")(disk), content("f.new")(disk)))
    assert set(found) == {(b"old", b"new"), (b"new", None)}
    assert min(found.values()) > 200


def test_a_rename_before_the_data_was_synced_loses_both() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        put(disk, "f", b"old", sync=True)
        put(disk, "f.new", b"new")
        disk.rename("f.new", "f")

    assert {b"old", b"new", b""} <= set(outcomes(prepare, content("f")))


def test_changes_of_names_survive_out_of_order_but_not_of_one_name() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        put(disk, "a", b"1", sync=True)
        disk.unlink("a")
        disk.open("b", create=True)
        disk.rename("b", "c")

    found = outcomes(prepare, lambda disk: tuple(disk.list("")))
    assert set(found) == {("a",), (), ("a", "b"), ("b",), ("a", "c"), ("c",)}


def test_a_name_used_again_does_not_overtake_the_rename_that_freed_it() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        put(disk, "a", b"1", sync=True)
        disk.rename("a", "b")
        disk.open("a", create=True)

    found = outcomes(prepare, lambda disk: (content("a")(disk), content("b")(disk)))
    assert set(found) == {(b"1", None), (None, b"1"), (b"", b"1")}


def test_sync_of_a_directory_leaves_the_others_alone() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.make_directory("d")
        disk.make_directory("e")
        disk.sync_directory("")
        disk.open("d/f", create=True)
        disk.open("e/f", create=True)
        disk.sync_directory("d")

    found = outcomes(prepare, lambda disk: (disk.exists("d/f"), disk.exists("e/f")))
    assert set(found) == {(True, True), (True, False)}


def test_killed_without_power_loss_keeps_everything() -> None:
    disk = SimulatedDisk(1)
    put(disk, "f", b"abc")
    assert disk.crash(is_power_lost=False).contents() == {"f": b"abc"}


def test_the_same_seed_gives_the_same_disk() -> None:
    def run(seed: int) -> dict[str, bytes]:
        disk = SimulatedDisk(seed)
        for i in range(5):
            put(disk, f"f{i}", bytes([i]) * 3000, sync=i < 2)
        return disk.crash().contents()

    assert run(3) == run(3)
    assert len({str(run(seed)) for seed in range(20)}) > 10


class TestSteps:
    def script(self, disk: SimulatedDisk) -> None:
        disk.make_directory("d")  # 1
        file = disk.open("d/f", create=True)  # 2
        file.write_at(0, b"abc")  # 3
        file.truncate(2)  # 4
        file.sync()  # 5
        disk.rename("d/f", "d/g")  # 6
        disk.sync_directory("d")  # 7
        disk.unlink("d/g")  # 8
        file.read_at(0, 1)
        assert disk.list("d") == []
        file.close()

    def test_are_counted_and_traced(self) -> None:
        disk = SimulatedDisk()
        disk.trace = []
        self.script(disk)
        assert disk.step_count == 8
        assert disk.trace == [
            ("make_directory", "d", 0),
            ("open", "d/f", 0),
            ("write", "d/f", 3),
            ("truncate", "d/f", 2),
            ("sync", "d/f", 0),
            ("rename", "d/f -> d/g", 0),
            ("sync_directory", "d", 0),
            ("unlink", "d/g", 0),
        ]
        assert disk.open_paths == []

    def test_a_machine_without_power_does_nothing_more_while_its_threads_end(self) -> None:
        loop = SimulatedLoop(1)
        node = loop.add_node("db")
        disk = SimulatedDisk(1)
        disk.crash_at = 2
        disk.on_end = partial(loop.crash, node)
        seen: list[str] = []

        def crashed() -> None:
            seen.append("it is started again" if not can_wait() else "a thread starts it again")

        node.on_crash.append(crashed)

        def write() -> None:
            disk.make_directory("d")
            try:
                disk.make_directory("e")
            finally:
                seen.append("the step has failed")
                wait_for(asyncio.sleep(0.1))  # as for a mutex
                seen.append("the thread went on")

        async def answer() -> None:
            await asyncio.sleep(0.05)
            seen.append("it was answered")

        in_thread(node, write)
        node.create_task(answer())
        loop.run_until_complete(asyncio.sleep(1.0))
        assert seen == ["the step has failed", "it is started again"]
        loop.close()

    @pytest.mark.parametrize("step", range(1, 9))
    def test_crash_at_each(self, step: int) -> None:
        seen: set[str] = set()
        for seed in range(50):
            disk = SimulatedDisk(seed)
            disk.crash_at = step
            with pytest.raises(SimulatedCrash, match=f"step {step} "):
                self.script(disk)
            assert disk.step_count == step
            with pytest.raises(SimulatedCrash):
                disk.exists("d")
            with pytest.raises(SimulatedCrash):
                disk.open("x", create=True)
            seen.add(str(disk.restart(is_power_lost=False).contents()))
            with pytest.raises(OSError) as caught:
                disk.exists("d")
            assert caught.value.errno == errno.EBADF
        # The step itself happened in some runs and not in others (not all change the contents).
        assert len(seen) == (2 if step in (2, 3, 4, 6, 8) else 1)

    def test_handles_and_locks_end_with_the_crash(self) -> None:
        disk = SimulatedDisk()
        file = disk.open("f", create=True)
        disk.lock("LOCK", "me")
        disk.sync_directory("")
        after = disk.crash()
        for use in (lambda: file.read_at(0, 1), lambda: file.write_at(0, b"x"), file.sync):
            with pytest.raises(OSError) as caught:
                use()
            assert caught.value.errno == errno.EBADF
        file.close()
        after.lock("LOCK", "next").close()

    def test_after_a_restart_everything_is_durable(self) -> None:
        disk = SimulatedDisk(1)
        put(disk, "f", b"abc" * 1000)
        disk.sync_directory("")
        after = disk.crash()
        again = after.crash()
        assert again.contents() == after.contents()
        assert after.step_count == 0


class TestFaults:
    @pytest.mark.parametrize("kind", sorted(KINDS))
    def test_fail_after_and_times(self, kind: str) -> None:
        disk = SimulatedDisk()
        disk.make_directory("d")
        for name in "stuvwxyz":
            disk.open(name, create=True).close()
            disk.make_directory(f"e{name}")
        file = disk.open("d/f", create=True)
        names = iter("stuvwxyz")
        use = {
            "open": lambda: disk.open("d/f").close(),
            "write": lambda: file.write_at(0, b"x"),
            "read": lambda: file.read_at(0, 1),
            "map": lambda: disk.map("d/f", 0),
            "sync": file.sync,
            "truncate": lambda: file.truncate(9),
            "allocate": lambda: file.allocate(9),
            "make_directory": lambda: disk.make_directory(f"d/{next(names)}"),
            "rename": lambda: disk.rename(next(names), "d/f"),
            "unlink": lambda: disk.unlink(next(names)),
            "remove_directory": lambda: disk.remove_directory(f"e{next(names)}"),
            "sync_directory": lambda: disk.sync_directory("d"),
        }[kind]
        disk.fail(kind, errno.EIO, after=1, times=2)
        use()
        for _ in range(2):
            with pytest.raises(OSError) as caught:
                use()
            assert caught.value.errno == errno.EIO
        use()
        disk.fail(kind, errno.EROFS, times=100)
        with pytest.raises(OSError) as caught:
            use()
        assert caught.value.errno == errno.EROFS
        disk.heal()
        use()

    def test_kind_and_path(self) -> None:
        disk = SimulatedDisk()
        with pytest.raises(ValueError, match="fsync"):
            disk.fail("fsync")
        disk.fail("write", path="log")
        put(disk, "data", b"x")
        with pytest.raises(OSError):
            put(disk, "log", b"x")

    def test_a_failed_write_may_have_begun(self) -> None:
        lengths: set[int] = set()
        for seed in range(100):
            disk = SimulatedDisk(seed)
            disk.fail("write")
            with pytest.raises(OSError):
                put(disk, "f", b"abcd")
            lengths.add(disk.size("f"))
        assert lengths == {0, 1, 2, 3}

    def test_a_failed_sync_loses_for_good_what_reads_still_show(self) -> None:
        found: Counter[bytes] = Counter()
        for seed in range(300):
            disk = SimulatedDisk(seed)
            put(disk, "f", b"old", sync=True)
            file = disk.open("f")
            file.write_at(0, b"new")
            disk.fail("sync")
            with pytest.raises(OSError):
                file.sync()
            assert file.read_at(0, 3) == b"new"
            file.sync()  # reports success, as Linux does
            found[disk.crash().read("f")] += 1
        assert found[b"old"] > 50
        assert found[b"new"] > 50

    def test_a_failed_sync_of_a_directory_is_partial(self) -> None:
        found: set[tuple[str, ...]] = set()
        for seed in range(100):
            disk = SimulatedDisk(seed)
            disk.open("a", create=True)
            disk.open("b", create=True)
            disk.fail("sync_directory")
            with pytest.raises(OSError):
                disk.sync_directory("")
            found.add(tuple(disk.crash().list("")))
        assert found == {(), ("a",), ("b",), ("a", "b")}

    def test_capacity(self) -> None:
        disk = SimulatedDisk(capacity_bytes=10)
        put(disk, "f", b"12345678")
        file = disk.open("g", create=True)
        with pytest.raises(OSError) as caught:
            file.write_at(0, b"abcd")
        assert caught.value.errno == errno.ENOSPC
        assert file.read_at(0, 9) == b"ab"  # the part that fitted
        with pytest.raises(OSError):
            file.truncate(3)
        disk.open("f").write_at(0, b"overwriting is fine"[:8])
        disk.unlink("f")
        file.write_at(0, b"abcdefghij")
        disk.capacity_bytes = None
        file.write_at(10, b"more")
        assert disk.contents() == {"g": b"abcdefghijmore"}

    def test_flip(self) -> None:
        disk = SimulatedDisk()
        put(disk, "f", b"abc", sync=True)
        disk.flip("f", 1, 0x01)
        assert disk.read("f") == b"acc"
        assert disk.crash().read("f") == b"acc"

    def test_latency_runs_before_the_op_and_outside_the_lock(self) -> None:
        disk = SimulatedDisk()
        seen: list[tuple[str, str, bool]] = []
        disk.latency = lambda op, path: seen.append((op, path, "f" in disk._names))
        disk.open("f", create=True).sync()
        assert seen == [("open", "f", False), ("sync", "f", True)]


def test_prefilled_files_cost_nothing() -> None:
    disk = SimulatedDisk()
    file = disk.open("log", create=True)
    zeros = bytes(64 * 1024 * 1024)
    file.write_at(0, zeros)
    file.write_at(0, b"frame")
    assert file.size() == len(zeros)
    node = disk._node("log")
    assert len(node.cached.data) == 5
    assert sum(len(change.data or b"") for change in node.unsynced) == 5
    file.sync()
    assert len(node.durable.data) == 5
    after = disk.crash()
    assert after.list("") in ([], ["log"])
