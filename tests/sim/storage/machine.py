"""Machine: the disks of one bookie, which lose their power together."""

import random
from functools import partial

from bookie.server.storage import entry_log
from bookie.server.storage.directories import LedgerDirectory
from bookie.server.storage.entry_logs import EntryLogs
from tests.sim.disk import STEPS, SimulatedCrash, SimulatedDisk


class Machine:
    """disks[0] has the journal; `ledgers` are the positions of those with entry logs."""

    def __init__(self, disks: list[SimulatedDisk], ledgers: list[int]) -> None:
        self.disks = disks
        self.ledgers = ledgers
        self.step_count = 0
        self.crash_at: int | None = None
        for disk in disks:
            disk.latency = partial(self._before, disk)

    def _before(self, disk: SimulatedDisk, op: str, path: str) -> None:
        if disk._end is None and self.crashed is not None:
            raise SimulatedCrash("the power failed in another disk's step")
        if op in STEPS:
            self.step_count += 1
            if self.crash_at is not None and self.step_count >= self.crash_at:
                disk.crash_at = disk.step_count + 1

    @property
    def crashed(self) -> SimulatedDisk | None:
        """The disk in whose step the power failed."""
        return next((disk for disk in self.disks if disk._end is not None), None)

    @property
    def open_paths(self) -> list[str]:
        return [path for disk in self.disks for path in disk.open_paths]

    def directories(self) -> list[LedgerDirectory]:
        return [LedgerDirectory(self.disks[n], f"disk {n}") for n in self.ledgers]

    @property
    def mortal(self) -> list[int]:
        """The positions of the disks that a bookie may lose: with entry logs, without journal."""
        return [n for n in self.ledgers if n > 0]

    def restart(self, *, is_power_lost: bool) -> "Machine":
        """Return what the next process finds: healthy disks with room."""
        disks = [disk.restart(is_power_lost=is_power_lost) for disk in self.disks]
        for disk in disks:
            disk.capacity_bytes = None
        return Machine(disks, self.ledgers)

    def lose(self, position: int, rng: random.Random) -> "Machine":
        """Return the machine without this disk, or with a new and empty one in its place."""
        disks, ledgers = list(self.disks), list(self.ledgers)
        if len(ledgers) > 1 and rng.random() < 0.5:
            ledgers.remove(position)
        else:
            disks[position] = SimulatedDisk(rng.getrandbits(64))
        return Machine(disks, ledgers)

    def entries_on(self, position: int) -> set[tuple[int, int]]:
        """Return the entries that this disk has a record of."""
        disk = self.disks[position]
        found: set[tuple[int, int]] = set()
        if not disk.exists(entry_log.DIRECTORY):
            return found
        logs = EntryLogs([LedgerDirectory(disk)])
        logs.open()
        for suffix in ("log", "compacted"):
            for number in logs.numbers(suffix):
                if disk.size(entry_log.path_of(number, suffix)) < entry_log.HEADER_BYTES:
                    continue
                try:
                    reader = logs.reader(number)
                except entry_log.CorruptFileError:
                    continue
                for record in reader.records():
                    if record.kind == entry_log.RecordKind.ENTRY:
                        found.add(record.ids)
                reader.close()
        return found
