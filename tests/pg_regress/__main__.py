"""`python -m tests.pg_regress CORPUS --files "boolean int4"`: PostgreSQL's regression SQL on both.

CORPUS is src/test/regress of PostgreSQL 15, which is fetched (Debian: apt-get source postgresql-15)
and never committed. Starts a PostgreSQL of its own (Debian's package; skipped aloud where there is
none), and runs each file on a new database of both servers, behind test_setup. Prints a table by
file, every difference, and the refusals by count; build/pg-regress.txt has all that is not equal.
Exit code 1 for a difference outside the closed list (docs/reference/sql.md) or an internal error.
"""

import argparse
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console

from tests.fixtures.postgres import NoPostgresError, postgres_folder, running_postgres, version
from tests.fixtures.seed_runner import table
from tests.pg_regress.comparison import Verdict
from tests.pg_regress.files import NAMED, files_of
from tests.pg_regress.outcome import SETUP, Outcome, ended
from tests.pg_regress.report import (
    COLUMNS,
    by_design,
    described,
    differences,
    one_line,
    refusals,
    rows,
    section,
    with_section,
)
from tests.pg_regress.run_script import run_file
from tests.style.test_layers import ROOT

_LIST = ROOT / "build" / "pg-regress.txt"
_PAGE = ROOT / "docs" / "reference" / "sql.md"
_REFUSALS = ("statements", "consequences", "refused too", "files", "refusal", "for example")
_WIDTH_MIN = 180  # what the table takes, in a log, too
_FAILURES = (Verdict.DIFFERENT, Verdict.INTERNAL)


def run_files(conninfo: str, corpus: Path, names: Sequence[str], folder: Path) -> list[Outcome]:
    """Run the files, each in a process of its own; test_setup's outcome is the first."""
    environment = {
        "PG_ABS_SRCDIR": str(folder), "PG_ABS_BUILDDIR": str(folder),
        "PG_LIBDIR": str(folder), "PG_DLSUFFIX": ".so",
    }  # fmt: skip
    outcomes: list[Outcome] = []
    for name in names:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            try:
                setup, own = pool.submit(run_file, conninfo, corpus, name, environment).result()
            except BrokenProcessPool:
                outcomes.append(ended(name))
                continue
        outcomes += [setup, own] if not any(each.name == SETUP for each in outcomes) else [own]
    return sorted(outcomes, key=lambda each: each.name != SETUP)


def shared_with_postgres(corpus: Path, folder: Path) -> None:
    """Copy the data of the corpus to where PostgreSQL's user may read it, and write beside it."""
    shutil.copytree(corpus / "data", folder / "data")
    (folder / "results").mkdir()
    for path in (folder / "results", *folder.rglob("data")):
        path.chmod(0o777)
    for path in (folder / "data").iterdir():
        path.chmod(0o644)


def report(console: Console, outcomes: Sequence[Outcome], refusals_max: int) -> int:
    """Print what there is to say, and write all of it to the list; the exit code."""
    console.print(table("PostgreSQL's regression SQL", COLUMNS, rows(outcomes)))
    skipped = sum((each.skipped for each in outcomes), Counter[str]())
    counts = [(kind, str(count)) for kind, count in skipped.most_common()]
    console.print(table("not compared", ("what", " times"), counts))
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    console.print(table("by design", ("rule", " statements"), by_design(findings)))
    failures = [each for each in findings if each.verdict in _FAILURES]
    for each in failures:
        console.print(described(each), style="red", highlight=False, markup=False, soft_wrap=True)
    _say(console, [("differences", "kind", "for example"), *differences(findings)])
    lines = [_REFUSALS] + [
        (str(each.statements), str(each.consequences), str(each.errors), str(each.files),
         each.reason, one_line(each.example))
        for each in refusals(findings)
    ]  # fmt: skip
    _say(console, lines[: refusals_max + 1])
    _LIST.parent.mkdir(exist_ok=True)
    with _LIST.open("w") as file:
        file.writelines(f"{' | '.join(line)}\n" for line in lines)
        file.writelines(f"\n{described(each)}" for each in findings)
    console.print(f"{len(failures)} findings; all that is not equal: {_LIST}")
    return 1 if failures else 0


def _short(version: str) -> str:
    """Return "PostgreSQL 15.13" of what the server says of itself."""
    return " ".join(version.partition("(")[2].replace(")", "").split()[:2])


def _say(console: Console, lines: Sequence[Sequence[str]]) -> None:
    for line in lines:
        console.print(" | ".join(line), highlight=False, markup=False, soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pg_regress", description=__doc__)
    parser.add_argument("corpus", type=Path, help="src/test/regress of PostgreSQL 15")
    parser.add_argument("--files", default="", help="names of some files; named: those measured")
    parser.add_argument("--refusals", type=int, default=40, help="how many kinds are printed")
    parser.add_argument("--table", action="store_true", help="write the table into the SQL page")
    options = parser.parse_args()
    corpus: Path = options.corpus
    if not (corpus / "sql" / f"{SETUP}.sql").is_file():
        parser.error(
            f"{corpus} has no sql/{SETUP}.sql: it is not src/test/regress of PostgreSQL 15"
        )
    names = options.files.replace("named", " ".join(NAMED)).split() or files_of(corpus)
    console = Console(width=max(Console().width, _WIDTH_MIN))
    try:
        with postgres_folder("pg-regress-") as folder:
            shared_with_postgres(corpus, folder)
            with running_postgres(folder / "postgres") as (conninfo, _):
                console.print(version())
                outcomes = run_files(conninfo, corpus, names, folder)
    except NoPostgresError as error:
        console.print(f"*** SKIPPED: no PostgreSQL to compare with: {error}", style="red")
        return 0
    if options.table:
        _PAGE.write_text(with_section(_PAGE.read_text(), section(outcomes, _short(version()))))
    return report(console, outcomes, options.refusals)


if __name__ == "__main__":
    sys.exit(main())
