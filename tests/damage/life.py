"""Lives: databases drawn from a seed, with all that their files came through, and a model of them.

A life is lived on a simulated disk and ends as a close, a kill or a power failure leaves it. It
keeps what its files held before, and what was committed at each moment, so that a damaged copy of
it can be judged by more than itself.
"""

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from bookie.runtime.interfaces import Disk
from herdpy.config import Config
from herdpy.engine.database import Database
from herdpy.engine.instance import Instance
from herdpy.engine.maintenance.restore import restore, verify_backup
from herdpy.engine.session.session import Session
from herdpy.log.frame import encode_frame
from herdpy.model.durability import Durability
from herdpy.model.lsn import Lsn
from herdpy.model.settings import Settings
from tests.crash.leases import lease_content
from tests.fixtures.small_sizes import small_sizes
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk
from tests.sim.driver import SimulatedDriver

Files = dict[str, bytes]
Row = tuple[Any, ...]
Rows = dict[Any, Row]
Content = dict[str, list[Row]]
"""The rows of each table, sorted; under ROLES the names of the roles."""

CONFIG = Config(
    log_file_bytes_first=4096,
    log_file_bytes_max=8192,
    disk_reserve_bytes=4096,
    vector_threads=1,
)
FOLDERS = ("default", "default/log", "default/segments", "default/temp")
MANIFEST = "default/MANIFEST"
ROLES = "sysroles"
ENDS = ("closed", "killed", "power lost")
_OPERATIONS = 45
_KEYS = 90


class Shape(NamedTuple):
    """A table of the lives: its columns, the names of them all, and the width of its key."""

    columns: str
    names: tuple[str, ...]
    key: tuple[str, ...]
    row: Callable[[random.Random, int], Row]


def _every_type(rng: random.Random, key: int) -> Row:
    day = date(1999, 12, 30) + timedelta(rng.randrange(900))
    moment = datetime(2024, 2, 29, 23, 59) + timedelta(seconds=rng.randrange(10**7))
    cells: list[Any] = [
        rng.random() < 0.5,
        rng.randrange(-(2**31), 2**31),
        rng.choice((-0.0, 1.5, float("inf"), rng.random())),
        Decimal(rng.randrange(-(10**9), 10**9)).scaleb(-2),
        Decimal(rng.randrange(-(10**25), 10**25)).scaleb(-2),
        rng.choice(("x", "", "ein längerer Text", f"{key}" * 9)),
        rng.randbytes(rng.randrange(40)),
        day,
        moment,
        moment.replace(tzinfo=UTC),
    ]
    return (key, *(None if rng.random() < 0.1 else cell for cell in cells))


def _two_parts(rng: random.Random, key: int) -> Row:
    return (f"{'abc'[key % 3]}{key}", key % 5, rng.randrange(1000), "some text" * rng.randrange(9))


SHAPES = {
    "t": Shape(
        "id BIGINT PRIMARY KEY, b BOOLEAN, i INTEGER, d DOUBLE PRECISION, n DECIMAL(12,2), "
        "w DECIMAL(30,2), s TEXT, y BYTEA, dt DATE, ts TIMESTAMP, tz TIMESTAMPTZ",
        ("id", "b", "i", "d", "n", "w", "s", "y", "dt", "ts", "tz"),
        ("id",),
        _every_type,
    ),
    "k": Shape(
        "a TEXT, b INTEGER, v BIGINT, s TEXT, PRIMARY KEY (a, b)",
        ("a", "b", "v", "s"),
        ("a", "b"),
        _two_parts,
    ),
    "h": Shape("v BIGINT, s TEXT", ("v", "s"), (), lambda rng, key: (key, f"row {rng.random()}")),
    "g": Shape(
        "id BIGINT PRIMARY KEY, v BIGINT",
        ("id", "v"),
        ("id",),
        lambda rng, key: (key, rng.randrange(1000)),
    ),
    "o": Shape(
        "id BIGINT PRIMARY KEY, v BIGINT",
        ("id", "v"),
        ("id",),
        lambda rng, key: (key, rng.randrange(1000)),
    ),
}


class Moment(NamedTuple):
    """All files at one moment between two statements, and what was committed then."""

    files: Files
    content: Content


class StagedJob(NamedTuple):
    """A staging job that is whole and not committed, and the rows of g that it would add."""

    name: str
    stages: list[int]
    rows: list[Row]


class Life(NamedTuple):
    """See the module; nothing in it is changed."""

    seed: int
    end: str
    """One of ENDS."""
    files: Files
    content: Content
    """What a database made of `files` has to hold."""
    states: list[tuple[Lsn, Content]]
    """What was committed from each position on, ascending."""
    moments: list[Moment]
    leases: dict[str, Content]
    """Physical rows by the lease's id."""
    job: StagedJob | None
    backup: tuple[bytes, Content]
    ever: dict[str, set[Row]]
    """Every row that was ever committed, by table."""

    def older(self, path: str) -> list[bytes]:
        """Return what a file held before, each content once."""
        found = dict.fromkeys(m.files[path] for m in self.moments if path in m.files)
        found.pop(self.files.get(path, b""), None)
        return list(found)

    def state_at(self, sequence: int) -> Content:
        """Return what was committed by the frames up to one."""
        return next(content for lsn, content in reversed(self.states) if lsn.entry_id <= sequence)


def disk_of(files: Files) -> SimulatedDisk:
    """Return a disk with these files, all durable."""
    disk = SimulatedDisk(len(files))
    for folder in FOLDERS:
        disk.make_directory(folder)
    for path, data in files.items():
        file = disk.open(path, create=True)
        file.write_at(0, data)
        file.sync()
        file.close()
    for folder in ("", *FOLDERS):
        disk.sync_directory(folder)
    return disk


def opened(disk: Disk, rng: random.Random, where: str = "the disk") -> Database:
    """Open a database of one thread: no syncer, and no maintenance but what is called."""
    clock = SimulatedClock()
    return Instance(
        disk=disk,
        clock=clock,
        rng=random.Random(rng.getrandbits(64)),
        driver=SimulatedDriver(clock, lambda _: False),
        config=CONFIG,
        where=where,
        is_threaded=False,
    ).start()


def ordered(rows: Any) -> list[Row]:
    """Return rows in an order that any rows have."""
    return sorted(rows, key=repr)


def found_content(database: Database, *, is_vector: bool = False) -> Content:
    """Return what a database holds, by SQL; the errors are those of the statements."""
    session = database.session(Settings(), autocommit=True)
    try:
        names = [row[0] for row in session.execute("SHOW TABLES", ()).rows()]
        content = {name: table_rows(session, name, is_vector=is_vector) for name in names}
        roles = session.execute("SELECT role_name FROM sysroles", ()).rows()
        return content | {ROLES: ordered(roles)}
    finally:
        session.close()


def table_rows(session: Session, name: str, *, is_vector: bool) -> list[Row]:
    """Return all rows of a table, by the row path or, grouped, by the vector path."""
    columns = ", ".join(SHAPES[name].names if name in SHAPES else ("id", "v"))
    if not is_vector:
        return ordered(session.execute(f"SELECT {columns} FROM {name}", ()).rows())
    text = f"SELECT {columns}, count(*) FROM {name} GROUP BY {columns}"
    counted = list(session.execute(text, ()).rows())
    return ordered(row[:-1] for row in counted for _ in range(row[-1]))


class _Living:
    """A life while it is lived."""

    def __init__(self, seed: int, disk: SimulatedDisk, rng: random.Random) -> None:
        self.seed = seed
        self.rng = rng
        self.disk = disk
        self.tables: dict[str, Rows] = {}
        self.roles: set[str] = set()
        self.states: list[tuple[Lsn, Content]] = []
        self.moments: list[Moment] = []
        self.leases: dict[str, Content] = {}
        self.job: StagedJob | None = None
        self.backup: tuple[bytes, Content] = (b"", {})
        self.ever: dict[str, set[Row]] = {}
        self.own: Rows = {}  # what the open transaction will have made of table o
        self.extra = 0
        self.number = 0
        self.database: Database
        self.session: Session
        self.writer: Session

    def open(self) -> None:
        self.database = opened(self.disk, self.rng)
        self.session = self.database.session(Settings(), autocommit=True)
        self.writer = self.database.session(Settings(), autocommit=False)
        self.own = dict(self.tables.get("o", {}))
        self.note()

    def close(self) -> None:
        self.database.close()

    def content(self) -> Content:
        tables = {name: ordered(rows.values()) for name, rows in self.tables.items()}
        return tables | {ROLES: ordered((name,) for name in self.roles)}

    def note(self) -> None:
        """Note what is committed from here on."""
        content = self.content()
        self.states.append((self.database.tablespace.state.lsn, content))
        for name, rows in self.tables.items():
            self.ever.setdefault(name, set()).update(rows.values())

    def keep(self) -> None:
        files = {p: data for p, data in self.disk.contents().items() if p != "LOCK"}
        self.moments.append(Moment(files, self.content()))

    def run(self, text: str, *parameters: Any) -> None:
        self.session.execute(text, parameters)

    # --- what may happen -------------------------------------------------------------------------

    def create(self, name: str) -> None:
        self.run(f"CREATE TABLE {name} ({SHAPES[name].columns})")
        self.tables[name] = {}
        self.note()

    def insert(self, name: str, count: int) -> None:
        shape, rows = SHAPES[name], self.tables[name]
        low = self.rng.randrange(_KEYS)
        made = [shape.row(self.rng, low + index) for index in range(count)]
        verb = "UPSERT" if shape.key else "INSERT"
        marks = ", ".join("?" * len(shape.names))
        text = f"{verb} INTO {name} VALUES ({marks})"
        if count == 1:
            self.run(text, *made[0])
        else:
            self.session.execute_many(text, made)
        for row in made:
            self.number += 1
            rows[row[: len(shape.key)] if shape.key else self.number] = row

    def change(self) -> None:
        """Update or delete a range of keys of t."""
        low = self.rng.randrange(_KEYS)
        high = low + self.rng.choice((0, 3, 20, 50))
        rows = self.tables["t"]
        touched = [key for key in rows if low <= key[0] <= high]
        if self.rng.random() < 0.5:
            self.run("UPDATE t SET i = ?, s = ? WHERE id BETWEEN ? AND ?", 7, "u", low, high)
            rows.update(
                {key: (*rows[key][:2], 7, *rows[key][3:6], "u", *rows[key][7:]) for key in touched}
            )
        else:
            self.run("DELETE FROM t WHERE id BETWEEN ? AND ?", low, high)
            for key in touched:
                del rows[key]

    def delete_of_two_parts(self) -> None:
        letter = self.rng.choice("abc")
        self.run("DELETE FROM k WHERE a >= ? AND a < ? AND b > 2", letter, f"{letter}5")
        rows = self.tables["k"]
        for key in [key for key in rows if letter <= key[0] < f"{letter}5" and key[1] > 2]:
            del rows[key]

    def define(self) -> None:
        """Make a table or a role, or drop one."""
        chance = self.rng.random()
        if chance < 0.4:
            self.extra += 1
            name = f"x{self.extra}"
            self.run(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, v BIGINT)")
            self.tables[name] = {}
            self.note()
            self.session.execute_many(
                f"INSERT INTO {name} VALUES (?, ?)", [(n, n) for n in range(9)]
            )
            self.tables[name] = {(n,): (n, n) for n in range(9)}
        elif chance < 0.7:
            gone = [name for name in self.tables if name.startswith("x")]
            if gone:
                name = self.rng.choice(gone)
                self.run(f"DROP TABLE {name}")
                del self.tables[name]
        elif chance < 0.8:
            self.run("TRUNCATE h")
            self.tables["h"] = {}
        else:
            self.number += 1
            self.run(f"CREATE ROLE r{self.number}")
            self.roles.add(f"r{self.number}")

    def transact(self) -> None:
        """Go on with the open transaction, which alone changes o, or end it."""
        chance = self.rng.random()
        if chance < 0.6:
            for _ in range(self.rng.choice((1, 30))):
                key = self.rng.randrange(_KEYS)
                row = SHAPES["o"].row(self.rng, key)
                self.writer.execute("UPSERT INTO o VALUES (?, ?)", row)
                self.own[key,] = row
        elif chance < 0.85:
            self.writer.commit()
            self.tables["o"] = dict(self.own)
        else:
            self.writer.rollback()
            self.own = dict(self.tables["o"])

    def stage(self) -> None:
        """Stage rows of new keys for g, and commit them or leave them."""
        job = f"job {self.number}"
        staging = self.session.staging
        staging.begin("g", "append", job)
        numbers: list[int] = []
        rows: list[Row] = []
        for task in range(self.rng.choice((1, 2))):
            self.number += 1
            base = 1000 * self.number
            part = [(base + n, n) for n in range(self.rng.choice((3, 40)))]
            number, _ = staging.begin_stage(job, str(task), "only")
            columns = [pa.array([row[i] for row in part], pa.int64()) for i in (0, 1)]
            staging.add(number, 0, pa.RecordBatch.from_arrays(columns, names=["id", "v"]))
            staging.finish_stage(number)
            numbers.append(number)
            rows += part
        if self.rng.random() < 0.5 or self.job is not None:
            staging.commit(job, numbers)
            self.tables["g"].update({row[:1]: row for row in rows})
        else:
            self.job = StagedJob(job, numbers, rows)

    def forge(self) -> None:
        """Insert a row with bytes that look like later frames of the log, wherever it stands.

        They are as their writer could make them who has all files, and not the frame's place.
        """
        listed = self.database.replica.manifest.state
        number, _, file_id = listed.listed_log_files[-1]
        sequence = self.database.tablespace.log.last_lsn.entry_id + 2
        frame = encode_frame(
            [b"forged"],
            log_id=listed.log_id,
            file_id=file_id,
            file_number=number,
            file_bytes=listed.log_bytes[number],
            offset=0,
            sequence=sequence + 1,
            durable_sequence=sequence,
        )
        data = (frame + bytes(1)) * 5  # frames begin at multiples of 8: mostly one of these does
        row = (10**6, *[None] * 6, data, *[None] * 3)
        self.run(f"UPSERT INTO t VALUES ({', '.join('?' * 11)})", *row)
        self.tables["t"][10**6,] = row
        self.note()

    def lease(self) -> None:
        if self.leases and self.rng.random() < 0.4:
            number = self.rng.choice(sorted(self.leases))
            self.session.leasing.end(number)
            del self.leases[number]
        elif len(self.leases) < 3:
            lease = self.session.leasing.take(10**6)
            self.leases[lease.id] = lease_content(self.database, lease)

    def back_up(self) -> None:
        backup = self.database.backup()
        self.backup = (b"".join(backup.pieces()), self.content())
        backup.close()

    def act(self) -> None:
        chance = self.rng.random()
        if chance < 0.28:
            self.insert(self.rng.choice("ttkh"), self.rng.choice((1, 1, 8, 40)))
        elif chance < 0.42:
            self.change()
        elif chance < 0.47:
            self.delete_of_two_parts()
        elif chance < 0.53:
            self.define()
        elif chance < 0.63:
            self.transact()
        elif chance < 0.68:
            self.stage()
        elif chance < 0.73:
            self.lease()
        elif chance < 0.85:
            self.database.run_checkpoint()
        elif chance < 0.93:
            self.database.run_compaction()
        elif chance < 0.95:
            self.back_up()
        elif chance < 0.97:
            self.database.tablespace.log.mark()
        else:
            self.close()
            self.keep()
            self.open()
        self.note()

    def end(self, how: str) -> Files:
        """End the life, and return the files that it leaves."""
        if how == "closed":
            self.close()
            disk = self.disk
        else:
            if self.rng.random() < 0.7:  # a tail that no client was told is durable
                choice = self.rng.choice((Durability.OS, Durability.OS, Durability.NONE))
                loose = Settings(durability=choice)
                self.session = self.database.session(loose, autocommit=True)
                for _ in range(self.rng.randrange(1, 6)):
                    self.insert("t", 1)
                    self.note()
                self.forge()
            disk = self.disk.restart(self.rng.getrandbits(64), is_power_lost=how == "power lost")
        return {path: data for path, data in disk.contents().items() if path != "LOCK"}


def _first_disk(seed: int, rng: random.Random) -> tuple[SimulatedDisk, Content | None]:
    """Return an empty disk, or one with a database that was restored from another's backup."""
    disk = SimulatedDisk(rng.getrandbits(64))
    if rng.random() < 0.75 or seed % 2 == 0:
        return disk, None
    backup, content = life_of(seed - 1).backup
    restore(verify_backup(memoryview(backup), "a backup"), disk, rng, "it", is_replacing=False)
    return disk, content


@lru_cache(maxsize=6)
def life_of(seed: int) -> Life:
    """Live the life of a seed; the same seed gives the same life."""
    with small_sizes():
        return _life_of(seed)


def _life_of(seed: int) -> Life:
    rng = random.Random(f"life {seed}")
    disk, before = _first_disk(seed, rng)
    living = _Living(seed, disk, rng)
    if before is not None:
        keys = {name: len(SHAPES[name].key) if name in SHAPES else 1 for name in before}
        living.tables = {
            name: {row[: keys[name]] or n: row for n, row in enumerate(rows, -(10**6))}
            for name, rows in before.items()
            if name != ROLES
        }
        living.roles = {row[0] for row in before[ROLES]}
        living.extra = living.number = 500
    living.open()
    living.keep()
    for name in SHAPES:
        if name not in living.tables:
            living.create(name)
    living.own = dict(living.tables["o"])
    living.note()
    living.keep()
    for _ in range(rng.randrange(_OPERATIONS)):
        living.act()
        if rng.random() < 0.2:
            living.keep()
    living.back_up()
    living.note()
    for _ in range(rng.randrange(_OPERATIONS)):
        living.act()
        if rng.random() < 0.2:
            living.keep()
    end = rng.choice(ENDS)
    files = living.end(end)
    content = _surviving(files, rng, living)
    return Life(
        seed,
        end,
        files,
        content,
        living.states,
        living.moments,
        living.leases,
        living.job,
        living.backup,
        living.ever,
    )


def _surviving(files: Files, rng: random.Random, living: _Living) -> Content:
    """Return what undamaged files hold: one of the states that the model allows."""
    database = opened(disk_of(files), rng)
    try:
        content = found_content(database)
    finally:
        database.close()
    assert any(content == state for _, state in living.states), "no state of the life"
    return content


def with_more(files: Files, seed: int) -> Files:
    """Return the files of a copy of a database that went on by itself for a while."""
    rng = random.Random(f"fork {seed}")
    disk = disk_of(files)
    with small_sizes():
        database = opened(disk, rng)
        session = database.session(Settings(), autocommit=True)
        if ("t",) not in session.execute("SHOW TABLES", ()).rows():
            session.execute(f"CREATE TABLE t ({SHAPES['t'].columns})", ())
        for turn in range(3):
            rows = [SHAPES["t"].row(rng, 2000 + turn * 20 + n) for n in range(20)]
            session.execute_many(f"UPSERT INTO t VALUES ({', '.join('?' * 11)})", rows)
            if rng.random() < 0.4:
                database.run_checkpoint()
        if rng.random() < 0.5:
            database.close()
    return {path: data for path, data in disk.contents().items() if path != "LOCK"}
