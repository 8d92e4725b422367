"""One seed: a directory of a life, one damage, and everything that can be asked of it afterwards.

What is asked for is right, or it is an error that names a file (and the offset, where bytes within
a file were changed); where opening refuses, no byte is changed; the doctor sees what opening and
reading see. What cannot be known is `allowed()` of damages.py, and nothing else.
"""

import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from bookie.runtime.os_disk import OsDisk
from herdpy.driver import restoring
from herdpy.driver.doctor import examine, salvaging
from herdpy.engine.database import Database
from herdpy.engine.maintenance.directory import FORMAT_HINT, INTERRUPTED_RESTORE_HINT
from herdpy.engine.maintenance.leftovers import MISFIT_HINT
from herdpy.engine.maintenance.restore import verify_backup
from herdpy.engine.session.session import Session
from herdpy.errors import Error, damaged
from herdpy.model.settings import Settings
from herdpy.storage.manifest import NOTHING_LEFT_HINT
from tests.crash.leases import lease_content
from tests.damage.damages import DIRECTORY, KINDS, Damage, Damaged, allowed, draw
from tests.damage.life import (
    FOLDERS,
    ROLES,
    SHAPES,
    Content,
    Life,
    Row,
    disk_of,
    found_content,
    life_of,
    opened,
    table_rows,
)
from tests.fixtures.small_sizes import small_sizes

T = TypeVar("T")
Tree = dict[str, bytes | None]
NO_DAMAGE, DAMAGED_BACKUP = "no damage", "damaged backup"
ALL_KINDS = (NO_DAMAGE, *KINDS, DAMAGED_BACKUP)
TRIALS_OF_A_LIFE = 20
ADVICE = {
    str(damaged("").hint), MISFIT_HINT, FORMAT_HINT, INTERRUPTED_RESTORE_HINT, NOTHING_LEFT_HINT,
    "Open it with the newer herdpy that wrote it.",
}  # fmt: skip
"""What the doctor may advise: tests/unit/herdpy/cli/test_advice.py does each of it."""
_STATES = {"XX001", "0A000", "58P01"}
"""Damage, a newer format, and what is no database."""
_NAMED = re.compile(r"FORMAT|MANIFEST|LOCK|TABLESPACES|default|\d{8}\.(log|segment)|\.backup")
_MEMORY = Path("/dev/shm")
"""Where it is there: its files are as real, and their syncs cost nothing."""
_COMPACTIONS_MAX = 20


class Outcome(NamedTuple):
    """What one run did, for the tables: the kind of damage, and what came of it."""

    kind: str
    came_of_it: str


class FindingError(Exception):
    """The run found a defect."""


def run_seed(seed: int, say: Callable[[str], object] | None = None) -> Outcome:
    """Run one seed; FindingError (with its cause) when something was not as it must be."""
    tell = say or (lambda _: None)
    life = life_of(seed // TRIALS_OF_A_LIFE)
    rng = random.Random(f"damage {seed}")
    kind = ALL_KINDS[(seed + seed // TRIALS_OF_A_LIFE) % len(ALL_KINDS)]
    folder = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
    says = kind
    try:
        with small_sizes():
            if kind == DAMAGED_BACKUP:
                return _try_backup(life, rng, folder)
            damage = Damage(kind, "", kind, dict(life.files), is_harmless=True)
            if kind != NO_DAMAGE:
                damage = draw(life, rng, kind)
            says = f"{damage.says}; {life.end}"
            tell(says)
            return _Trial(life, damage, rng, folder / "db", tell).run()
    except (Exception, AssertionError) as error:
        raise FindingError(f"seed {seed}: {says}: {type(error).__name__}: {error}") from error
    finally:
        shutil.rmtree(folder)


def put(path: Path, files: Damaged, without_folder: str = "") -> None:
    """Make a directory of these files."""
    path.mkdir()
    for folder in FOLDERS:
        is_gone = f"{folder}/".startswith(f"{without_folder}/")
        if folder not in files and not (without_folder and is_gone):
            (path / folder).mkdir(parents=True)
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        if data is DIRECTORY:
            (path / name).mkdir()
            (path / name / "note").write_text("mine")
        else:
            (path / name).write_bytes(data)


def tree(path: Path) -> Tree:
    """Return all that is there but LOCK; None is a directory."""
    return {
        str(each.relative_to(path)): None if each.is_dir() else each.read_bytes()
        for each in path.rglob("*")
        if each.name != "LOCK"
    }


@lru_cache(maxsize=4)
def _sound_dump(seed: int) -> bytes:
    """Return what a dump of an undamaged life says, without its first line."""
    database = opened(disk_of(life_of(seed).files), random.Random(seed))
    try:
        return _dump_of(database)
    finally:
        database.close()


def _dump_of(database: Database) -> bytes:
    dump = database.dump()
    try:
        return b"".join(dump.pieces()).partition(b"\n")[2]
    finally:
        dump.close()


Salvaged = tuple[bytes, list[str], dict[str, int], dict[str, int]]


def _salvaged(path: Path) -> Salvaged:
    """Return the text of a salvage, what it names, and rows saved and lost by table."""
    with salvaging(path) as found:
        text = b"".join(found.pieces())
        return text, found.damages, found.row_counts, found.lost


def _loaded(text: bytes) -> Content:
    """Return what a database holds that a dump was run in."""
    database = opened(disk_of({}), random.Random(1))
    session = database.session(Settings(), autocommit=True)
    try:
        lines = [line for line in text.decode().splitlines() if not line.startswith("--")]
        for statement in "\n".join(lines).split(";\n"):
            if statement.strip("; \n"):
                session.execute(statement, ())
        return found_content(database)
    finally:
        session.close()
        database.close()


class _Trial:
    def __init__(
        self,
        life: Life,
        damage: Damage,
        rng: random.Random,
        path: Path,
        tell: Callable[[str], object],
    ) -> None:
        self.life = life
        self.damage = damage
        self.rng = rng
        self.path = path
        self.tell = tell
        self.right = allowed(life, damage)
        self.is_whole_answer = len(self.right) == 1 and damage.moment is None
        self.is_life = True
        """What was found is what the life ended with."""
        self.errors: Counter[str] = Counter()

    def run(self) -> Outcome:
        put(self.path, self.damage.files, self.damage.without_folder)
        before = tree(self.path)
        damages = self._doctor()
        self._salvage(damages)
        assert tree(self.path) == before, "the doctor, or salvage, changed something"
        database = self._attempt(
            "open", lambda: opened(OsDisk(self.path), self.rng, str(self.path))
        )
        if database is None:
            changed = dict(tree(self.path).items() ^ before.items())
            assert not changed, f"opening refused, and changed {sorted(changed)}"
        else:
            self._ask(database)
        if self.errors:
            assert damages, f"the doctor sees nothing of {dict(self.errors)}"
        if self.damage.is_harmless:
            assert not [*damages, *self.errors], f"sound, and called damaged: {damages}"
        came = "refused" if database is None else "error at a read" if self.errors else "right"
        if came == "right" and damages:
            came = "seen by the doctor alone"
        elif came == "right" and not self.is_life:
            came = "cannot be known"
        return Outcome(self.damage.kind, came)

    # --- what is asked ---------------------------------------------------------------------------

    def _doctor(self) -> list[str]:
        report = self._attempt("doctor", lambda: examine(self.path))
        damages = ["the doctor refused"] if report is None else report.damages
        advice = set() if report is None else set(report.advice)
        assert advice <= ADVICE, f"advice that no test follows: {advice - ADVICE}"
        self.errors.clear()
        for text in damages:
            self.tell(f"doctor: {text}")
        return damages

    def _salvage(self, damages: list[str]) -> None:
        """Save what is whole, and load it: all of it was there, and what is missing is named."""
        made = self._attempt("salvage", lambda: _salvaged(self.path))
        self.errors.clear()
        if made is None:
            assert damages, "salvage refuses what the doctor calls sound"
            return
        text, missing, counts, lost = made
        saved = _loaded(text)
        roles = saved.pop(ROLES)
        assert counts == {name: len(rows) for name, rows in saved.items()}, "counts are wrong"
        if not missing:
            assert any(right == saved | {ROLES: roles} for right in self.right), "wrong: salvage"
        if self.damage.kind == "of another database":
            return  # and then what is whole may be the other's
        for name, rows in saved.items():
            never = set(rows) - self.life.ever.get(name, set())
            assert not never, f"wrong: {name} never had {sorted(never, key=repr)[:3]}"
        harmed = {
            path
            for path in {*self.life.files, *self.damage.files}
            if self.life.files.get(path, b"") != self.damage.files.get(path, b"")
        }
        if all(path.startswith("default/segments/") for path in harmed):
            for name, rows in self.life.content.items():
                if name != ROLES:
                    found = Counter(saved.get(name, []))
                    assert found <= Counter(rows), f"wrong: rows of {name} are not those of now"
                    gone = len(rows) - found.total()
                    assert gone <= lost.get(name, 0), f"{gone} rows of {name} are missing unnamed"

    def _ask(self, database: Database) -> None:
        """Read everything on both paths, write, close, and read again."""
        session = database.session(Settings(), autocommit=True)
        try:
            self._read(session)
            self.is_life = self.life.content in self.right
            self._read(session, is_vector=True)
            if self.is_whole_answer:
                self._leases(database)
                text = self._attempt("dump", lambda: _dump_of(database))
                assert text in (None, _sound_dump(self.life.seed)), "the dump is another one"
            self._back_up(database)
            self._commit_staged(session)
            self._write(session)
            self._attempt("checkpoint", database.run_checkpoint)
            self._attempt("compaction", lambda: self._compact(database))
            self._read(session)
        finally:
            session.close()
            database.close()
        again = self._attempt("open again", lambda: opened(OsDisk(self.path), self.rng))
        if again is not None:
            session = again.session(Settings(), autocommit=True)
            self._read(session)
            session.close()
            again.close()

    def _read(self, session: Session, *, is_vector: bool = False) -> None:
        rows = session.execute("SHOW TABLES", ()).rows()
        names = sorted(row[0] for row in rows)
        self._keep("tables", lambda right: sorted(right.keys() - {ROLES}) == names)
        roles = sorted(session.execute("SELECT role_name FROM sysroles", ()).rows())
        self._keep("roles", lambda right: right[ROLES] == roles)
        for name in names:
            found = self._attempt(
                name, lambda name=name: table_rows(session, name, is_vector=is_vector)
            )
            if found is not None:
                self._keep(
                    f"rows of {name}, {'vector' if is_vector else 'row'} path",
                    lambda right, name=name, found=found: right[name] == found,
                )
        if not is_vector:
            for name in ("t", "k"):
                if name in names:
                    self._points(session, name)

    def _keep(self, what: str, fits: Callable[[Content], bool]) -> None:
        """Go on with those of the right answers that what was found is one of."""
        left = [right for right in self.right if fits(right)]
        assert left, f"wrong: {what}"
        self.right = left

    def _points(self, session: Session, name: str) -> None:
        """Read a few rows by their keys, and one that was never there."""
        key = SHAPES[name].key
        text = f"SELECT * FROM {name} WHERE {' AND '.join(f'{part} = ?' for part in key)}"
        rows = self.right[0][name]
        for row in self.rng.sample(rows, min(3, len(rows))):
            found = self._attempt(
                f"a row of {name}",
                lambda row=row: list(session.execute(text, row[: len(key)]).rows()),
            )
            assert found in (None, [row]) or len(self.right) > 1, f"wrong: point read of {row}"
        never = (-7,) if len(key) == 1 else ("zz", -7)
        found = self._attempt(
            f"no row of {name}", lambda: list(session.execute(text, never).rows())
        )
        assert found in (None, []), f"wrong: a row that was never there: {found}"

    def _leases(self, database: Database) -> None:
        for number, content in self.life.leases.items():
            lease = database.tablespace.applier.leases.find(number)
            assert lease is not None, f"wrong: lease {number} is gone"
            found = self._attempt("a lease", lambda lease=lease: lease_content(database, lease))
            assert found in (None, content), f"wrong: what lease {number} shows"

    def _back_up(self, database: Database) -> None:
        def make() -> bytes:
            backup = database.backup()
            try:
                return b"".join(backup.pieces())
            finally:
                backup.close()

        data = self._attempt("backup", make)
        if data is not None:
            verify_backup(memoryview(data), "the backup")

    def _commit_staged(self, session: Session) -> None:
        """Commit the job that the life left, if it is there to be committed."""
        job = self.life.job
        if job is None or not self.is_whole_answer:
            return
        if self._attempt("staged rows", lambda: session.staging.commit(job.name, job.stages)):
            self._add("g", job.rows)

    def _write(self, session: Session) -> None:
        row = (10**7, *[None] * 10)
        text = f"INSERT INTO t VALUES ({', '.join('?' * 11)})"
        if any("t" not in right for right in self.right):
            return
        if self._attempt("insert", lambda: session.execute(text, row)) is not None:
            self._add("t", [row])

    def _add(self, name: str, rows: list[Row]) -> None:
        self.right = [{**each, name: sorted([*each[name], *rows], key=repr)} for each in self.right]

    def _compact(self, database: Database) -> None:
        for _ in range(_COMPACTIONS_MAX):
            if not database.run_compaction():
                break

    # --- errors ----------------------------------------------------------------------------------

    def _attempt(self, what: str, step: Callable[[], T]) -> T | None:
        """Return what a step gives; None for an error that says what it must."""
        try:
            return step()
        except Error as error:
            self.tell(f"{what}: {error}")
            is_of_it = self.damage.path.rpartition("/")[2] in error.message
            check_named(error, is_offset_known=self.damage.is_in_place and is_of_it)
            self.errors[f"{what}: {error}"] += 1
            return None


def check_named(error: Error, *, is_offset_known: bool) -> None:
    """Raise unless the error names a file, and an offset where there is one."""
    said = f"{error.sqlstate} {error}"
    assert error.sqlstate in _STATES, f"an error of another kind: {said}"
    assert error.hint, f"an error without advice: {said}"
    assert _NAMED.search(error.message), f"an error that names no file: {said}"
    if is_offset_known:
        assert re.search(r"offset \d+", error.message), f"an error that names no offset: {said}"


def _try_backup(life: Life, rng: random.Random, folder: Path) -> Outcome:
    """Restore a damaged backup: it is the database that was backed up, or refused untouched."""
    data, content = life.backup
    offset, length = rng.randrange(len(data)), rng.choice((1, 512, 4096))
    harmed: list[bytes] = [
        data[:offset],
        data + data[:length],
        data[:offset] + bytes(length) + data[offset + length :],
        data[:offset] + bytes([data[offset] ^ 1 << rng.randrange(8)]) + data[offset + 1 :],
        data[:offset] + data[offset + length :],
        data,
    ]
    changed = rng.choice(harmed)
    (folder / "a.backup").write_bytes(changed)
    target = folder / "restored"
    try:
        restoring.restore(folder / "a.backup", target)
    except Error as error:
        check_named(error, is_offset_known=True)
        if changed == data or target.exists():
            raise AssertionError(
                f"a sound backup is refused, or leaves something: {error}"
            ) from error
        return Outcome(DAMAGED_BACKUP, "refused")
    database = opened(OsDisk(target), rng)
    try:
        session = database.session(Settings(), autocommit=True)
        for name, rows in content.items():
            if name != ROLES:
                assert table_rows(session, name, is_vector=False) == rows, f"wrong: {name}"
    finally:
        database.close()
    return Outcome(DAMAGED_BACKUP, "right")
