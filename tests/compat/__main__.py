"""What an older commit left, and its driver and server, with those of this one: make compat.

1. A directory that the old commit has made, killed or closed, is opened by this one: all rows,
   users and rights are there, what was not committed is not, leases, jobs and their tokens count.
2. Its backup is restored by this one.
3. Where the formats differ: a kill at any rename of the upgrade leaves what this commit opens, and
   the old one opens or refuses by a sentence; it refuses what is upgraded, and backups of that.
4. Drivers of both commits hold the same session with servers of both, over TCP and gRPC.

Ends with 1 when anything differs. Programs are directory.py, killed_upgrade.py and session.py, run
by either commit in an environment of its own.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape

from tests.fixtures.old_commit import ROOT, NoOldCommitError, environment_of, old_commit
from tests.fixtures.ports import own_port

_FOLDER = Path(__file__).parent
_PROGRAM_S_MAX = 300.0
_PASSWORD = "a long secret"
_DIFFERENCES_SHOWN = 10
_MAKE_ADMIN = """
import sys, herdpy
with herdpy.connect(sys.argv[1], autocommit=True) as connection:
    connection.execute("CREATE USER admin SUPERUSER PASSWORD ?", sys.argv[2:])
"""
_REFUSED = """
import sys, herdpy
try:
    if len(sys.argv) > 2:
        herdpy.restore(sys.argv[1], sys.argv[2])
    else:
        herdpy.connect(sys.argv[1]).close()
    print("not refused")
except herdpy.Error as error:
    print(error)
"""
_BACK_UP = """
import sys, herdpy
with herdpy.connect(sys.argv[1], autocommit=True) as connection:
    connection.backup(sys.argv[2])
"""
_LOG_IN = """
import os, sys, herdpy
for user, table in (("admin", "many"), ("ann", "words"), ("ann", "many")):
    url = sys.argv[1].replace("admin", user)
    with herdpy.connect(url, password=os.environ["PASSWORD"]) as connection:
        try:
            connection.execute(f"SELECT count(*) FROM {table}").fetchall()
            print(user, table)
        except herdpy.Error as error:
            print(user, table, error.sqlstate)
"""


class Commit(NamedTuple):
    """A commit that programs run on."""

    name: str
    python: str
    environment: dict[str, str]

    def command(self, *words: object) -> list[str]:
        # -P: what stands beside a program is not the commit's.
        return [self.python, "-P", *map(str, words)]

    def run(self, *words: object, told: object = None, exit_code: int = 0, **variables: str) -> str:
        """Run a program or a module; return what it printed. AssertionError: it failed."""
        ran = subprocess.run(
            self.command(*words),
            input="" if told is None else json.dumps(told),
            capture_output=True,
            text=True,
            timeout=_PROGRAM_S_MAX,
            env={**self.environment, **variables},
            check=False,
        )
        said = f"{ran.stdout[-500:]}\n{ran.stderr[-3000:]}"
        assert ran.returncode == exit_code, f"{self.name}: ended with {ran.returncode}: {said}"
        return ran.stdout


class Report:
    """Prints each check and keeps what it said; `failures` counts those that failed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.said: list[str] = []
        self.failures = 0

    def check(self, what: str, differences: list[str]) -> None:
        self.failures += bool(differences)
        self.said.append(": ".join([what, *differences[:1]]))
        self._console.print(
            f"{'[red]DIFFERS' if differences else '[green]same   '}[/] {escape(what)}"
        )
        for each in differences[:_DIFFERENCES_SHOWN]:
            self._console.print(f"        {escape(each)}")

    @contextmanager
    def part(self, what: str) -> Iterator[None]:
        """Report a program that failed, and go on behind the block."""
        try:
            yield
        except (AssertionError, subprocess.TimeoutExpired) as error:
            self.check(what, [str(error)])


def differences(wanted: Any, found: Any, where: str = "") -> list[str]:
    """Return where two JSON values differ, one line each."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            line
            for key in [*wanted, *(key for key in found if key not in wanted)]
            for line in differences(wanted.get(key), found.get(key), f"{where}/{key}")
        ]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return [line for n, (a, b) in pairs for line in differences(a, b, f"{where}/{n}")]
    if wanted == found:
        return []
    return [f"{where}: expected {str(wanted)[:300]}, found {str(found)[:300]}"]


@contextmanager
def served(commit: Commit, directory: Path) -> Iterator[dict[str, str]]:
    """Give the URLs of a server, by transport, for the user admin."""
    port, grpc_port = own_port(), own_port()
    ports = ["--port", port, "--grpc-port", grpc_port]
    with (directory.parent / f"{directory.name}.log").open("wb") as log:
        process = subprocess.Popen(
            commit.command("-m", "herdpy.cli", "serve", directory, *ports),
            stdout=subprocess.PIPE, stderr=log, env=commit.environment,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            said = (directory.parent / f"{directory.name}.log").read_text()
            raise AssertionError(f"the server of {commit.name} did not start: {said[-2000:]}")
        yield {
            "tcp": f"herd://admin@127.0.0.1:{port}",
            "grpc": f"herd+grpc://admin@127.0.0.1:{grpc_port}",
        }
    finally:
        process.terminate()
        process.communicate(timeout=60)


def check_directory(report: Report, old: Commit, new: Commit, ending: str, folder: Path) -> None:
    """A directory that the old commit left is opened by the new one, and its backup restored."""
    what = f"a directory of {old.name}, {ending}"
    program, made = _FOLDER / "directory.py", folder / "made"
    code = -9 if ending == "killed" else 0
    said = json.loads(old.run(program, "make", made, folder / "backup", ending, exit_code=code))
    wanted = said["contents"]
    with report.part(f"{what}: opened here"):
        shutil.copytree(made, folder / "looked")
        report.check(f"{what}: doctor", _doctor(new, folder / "looked"))
        found = json.loads(new.run(program, "look", folder / "looked", told=said))
        report.check(f"{what}: all rows, users and rights", differences(wanted, found["contents"]))
        asked = {name: said[name] for name in ("at_lease", "done_at")}
        asked |= {"again": True, "released": True}
        found_of = {name: found[name] for name in asked}
        report.check(f"{what}: lease and jobs", differences(asked, found_of))
        staged = [row for row in wanted["staged"] if row[0] != "int 3"]
        staged += [[f"int {n}", f"float {n * 10.0}"] for n in (3, 4, 5)]
        staged.sort(key=lambda row: int(row[0].split()[1]))
        report.check(f"{what}: what was staged there", differences(staged, found["staged"]))
        again = json.loads(new.run(program, "look", folder / "looked"))
        report.check(f"{what}: opened once more", differences(found["after"], again["contents"]))
        report.check(f"{what}: doctor once more", _doctor(new, folder / "looked"))
    with report.part(f"{what}: its backup"):
        restored = new.run(program, "restore", folder / "backup", folder / "restored")
        there = json.loads(restored)["contents"]
        report.check(f"{what}: its backup restored", differences(said["at_backup"], there))
    if _format(made) != _format(folder / "looked"):
        check_refusals(report, old, new, what, folder)
        check_killed_upgrades(report, old, new, what, folder)
    with report.part(f"{what}: its users"), served(new, made) as urls:
        who = new.run("-c", _LOG_IN, urls["tcp"], PASSWORD=_PASSWORD)
        rights = ["admin many", "ann words", "ann many 42501"]
        report.check(f"{what}: users log in", differences(rights, who.splitlines()))


def _format(directory: Path) -> str:
    return (directory / "FORMAT").read_text()


def _refusal(commit: Commit, wanted: str, *words: object) -> list[str]:
    """Return how a refusal differs from one that says `wanted`; nothing when it does not."""
    said = commit.run("-c", _REFUSED, *words)
    return [] if wanted in said else [f"expected {wanted!r}, found {said[:300]!r}"]


def check_refusals(report: Report, old: Commit, new: Commit, what: str, folder: Path) -> None:
    """What is upgraded, and its backup, are refused by the old commit in so many words."""
    with report.part(f"{what}: refusals"):
        wanted = "has format 2; this herdpy reads up to 1"
        said = _refusal(old, wanted, folder / "looked")
        report.check(f"{what}: once upgraded, refused by {old.name}", said)
        new.run("-c", _BACK_UP, folder / "looked", folder / "new.backup")
        said = _refusal(
            old, "offset 0: expected the header of segment", folder / "new.backup", folder / "gone"
        )
        report.check(f"{what}: a backup of it, refused by {old.name}", said)


def check_killed_upgrades(
    report: Report, old: Commit, new: Commit, what: str, folder: Path
) -> None:
    """A kill at a rename of the upgrade loses nothing, and the old commit never misreads it."""
    program = _FOLDER / "directory.py"
    kept: Any = None
    for name, moment, is_format_1 in (
        ("FORMAT", "before", True),
        ("FORMAT", "after", False),
        ("MANIFEST", "before", False),
        ("MANIFEST", "after", False),
    ):
        step = f"{what}: upgrade killed {moment} the rename of {name}"
        directory = folder / f"{name}-{moment}"
        with report.part(step):
            shutil.copytree(folder / "made", directory)
            killed = _FOLDER / "killed_upgrade.py"
            new.run(killed, directory, name, moment, exit_code=-9)
            report.check(f"{step}: doctor", _doctor(new, directory))
            if is_format_1:
                shutil.copytree(directory, folder / "back")
                found = json.loads(old.run(program, "look", folder / "back"))["contents"]
                kept = found
                there = ["int 79", "str 'before the upgrade'"] in found["heap"]
                report.check(f"{step}: opened by {old.name}", [] if there else ["a row is lost"])
            else:
                said = _refusal(old, "has format 2; this herdpy reads up to 1", directory)
                report.check(f"{step}: refused by {old.name}", said)
            found = json.loads(new.run(program, "look", directory))["contents"]
            report.check(f"{step}: opened here", differences(kept, found))
            new.run("-c", _BACK_UP, directory, folder / f"{name}-{moment}.backup")
            found = [_format(directory), (directory / "default" / "MANIFEST").read_bytes()[8]]
            report.check(f"{step}: finished later", differences(["herdpy 2\n", 2], found))


def _doctor(commit: Commit, directory: Path) -> list[str]:
    said = commit.run("-m", "herdpy.cli", "doctor", directory)
    return [] if "no damage" in said else [said]


def check_sessions(report: Report, pairs: list[tuple[Commit, Commit]], folder: Path) -> None:
    """Each driver holds the same session with its server; the first pair says what is expected."""
    wanted: Any = None
    for driver, server in pairs:
        for transport in ("tcp", "grpc"):
            what = f"driver of {driver.name}, server of {server.name}, {transport}"
            directory = folder / f"{server.name}-{driver.name}-{transport}"
            with report.part(what):
                server.run("-c", _MAKE_ADMIN, directory, _PASSWORD)
                with served(server, directory) as urls:
                    password = {"HERDPY_COMPAT_PASSWORD": _PASSWORD}
                    text = driver.run(_FOLDER / "session.py", urls[transport], **password)
                found = json.loads(text)
                wanted = found if wanted is None else wanted
                report.check(f"{what}: {len(found)} steps", differences(wanted, found))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    parser.add_argument("--old", metavar="COMMIT", default="62f20b8")
    parser.add_argument("--keep", type=Path, help="leave the directories there")
    options = parser.parse_args()
    try:
        there = old_commit(options.old)
    except NoOldCommitError as error:
        raise SystemExit(f"compat: {error}") from error
    old = Commit(there.name, there.python, there.environment())
    new = Commit("here", sys.executable, environment_of(ROOT))
    report = Report(Console(width=None if sys.stdout.isatty() else 160))
    with tempfile.TemporaryDirectory(prefix="compat-") as scratch:
        folder = Path(scratch) if options.keep is None else options.keep
        for ending in ("killed", "clean"):
            (folder / ending).mkdir(parents=True)
            with report.part(f"a directory of {old.name}, {ending}"):
                check_directory(report, old, new, ending, folder / ending)
        check_sessions(report, [(new, new), (old, new), (new, old), (old, old)], folder)
    print(f"{report.failures} differences" if report.failures else "all the same")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
