"""`python -m tests.slt --corpus DIR --sample 300000 --seed 1 --strict --jobs 2`: sqllogictest.

Runs the public suite, a checkout of which is DIR: select1 to select5 and evidence/ as a whole, but
for the files about triggers, and of index/ and random/ about as many records as --sample says, by
the seed. Prints what records came to by folder, what was refused by SQLSTATE, and wrong answers;
all of that is in build/slt.txt. Exit code 1 for a wrong answer, an internal error, or below the
bar: with connect(dialect="sqlite") every record passes, with --strict 99.7 % of them.
"""

import argparse
import inspect
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape

import herdpy
from tests.fixtures.seed_runner import progress, table
from tests.slt.draw import TRIGGERS, draw, folder_of, names_in
from tests.slt.run_file import Part, Target, run_part
from tests.slt.tally import Tally

SHARE_MIN_STRICT = 0.997
_FILE = Path("build/slt.txt")
_FINDINGS_SHOWN = 30
_REFUSALS_SHOWN = 40
_FILE_COLUMNS = 160
"""Of what no terminal shows."""
_COLUMNS = (
    "folder", " files", " records", " passed", " share", " coerced", " refused", " doubtful",
    " by type", " different", " internal", " skipped", " seconds", " records/s",
)  # fmt: skip


def run_parts(
    corpus: Path, parts: list[Part], target: Target, jobs: int, console: Console
) -> Iterator[tuple[Part, Tally]]:
    """Yield each part with what its records came to, as they end; the longest are begun first."""
    longest_first = sorted(parts, key=lambda part: -part.count)
    with ProcessPoolExecutor(jobs) as pool, progress(console) as bar:
        task = bar.add_task("records", total=sum(part.count for part in parts))
        run = partial(run_part, corpus, target=target)
        waiting = {pool.submit(run, part): part for part in longest_first}
        try:
            for future in as_completed(waiting):
                bar.update(task, advance=waiting[future].count)
                yield waiting[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def show(console: Console, tallies: dict[str, Tally]) -> Tally:
    """Print the tables and the findings, write them to build/slt.txt, and return the sum."""
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    rows = [_row(folder, tally) for folder, tally in sorted(tallies.items())]
    console.print(table("by folder", _COLUMNS, [*rows, _row("all", total)]))
    refusals = [
        (refusal.sqlstate, escape(refusal.message), f"{count:,}", escape(total.examples[refusal]))
        for refusal, count in total.refused.most_common(_REFUSALS_SHOWN)
    ]
    if refusals:
        columns = ("SQLSTATE", "message", " records", "the first")
        console.print(table("refused", columns, refusals))
    for title, counter in (("different", total.different), ("internal errors", total.internal)):
        if counter:
            kinds = [(escape(kind), f"{count:,}") for kind, count in counter.most_common()]
            console.print(table(title, ("kind", " records"), kinds))
    for finding in total.findings[:_FINDINGS_SHOWN]:
        console.print(str(finding), style="red", highlight=False, markup=False, soft_wrap=True)
    _write(total)
    return total


def _row(folder: str, tally: Tally) -> tuple[str, ...]:
    counts = (tally.refused.total(), tally.doubtful, tally.typed, tally.different.total(),
              tally.internal.total(), tally.skipped)  # fmt: skip
    return (
        folder, f"{tally.files:,}", f"{tally.run:,}", f"{tally.passed:,}",
        f"{tally.share_passed:.3%}", f"{tally.coerced:,}", *(f"{count:,}" for count in counts),
        f"{tally.seconds:,.1f}", f"{tally.run / max(tally.seconds, 1e-9):,.0f}",
    )  # fmt: skip


def _write(total: Tally) -> None:
    lines = [
        f"{count:8} {refusal.sqlstate} {refusal.message}\n         {total.examples[refusal]}\n"
        for refusal, count in total.refused.most_common()
    ]
    lines += [f"{finding}\n" for finding in (*total.findings, *total.asides)]
    _FILE.parent.mkdir(exist_ok=True)
    _FILE.write_text("".join(lines))


def is_above_bar(total: Tally, *, is_strict: bool) -> bool:
    """Tell whether what ran is enough: some, no wrong answer, and few refusals or none."""
    share_min = SHARE_MIN_STRICT if is_strict else 1.0
    return total.wrong == 0 and total.share_passed >= share_min


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slt", description=__doc__)
    parser.add_argument("--corpus", type=Path, help="a checkout, or its folder test")
    parser.add_argument("--sample", type=int, default=300_000, help="records of index and random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--strict", action="store_true", help="herdpy's own SQL, without a dialect")
    parser.add_argument("--engine", default="herdpy", help="its name in skipif and onlyif")
    parser.add_argument("--only", nargs="+", default=[], help="beginnings of names of files")
    parser.add_argument("--directory", action="store_true", help="databases in directories")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else _FILE_COLUMNS)
    if options.corpus is None:
        console.print(
            "*** SKIPPED: no corpus of sqllogictest: clone a copy of its repository, and"
            " `make slt CORPUS=dir`", style="red", markup=False,
        )  # fmt: skip
        return 0
    if not options.strict and "dialect" not in inspect.signature(herdpy.connect).parameters:
        console.print(
            "*** NOT RUN: this herdpy has no connect(dialect='sqlite'); `make slt STRICT=1` runs"
            " the suite in herdpy's own SQL", style="red", markup=False,
        )  # fmt: skip
        return 1
    inner = options.corpus / "test"
    corpus: Path = (inner if inner.is_dir() else options.corpus).resolve()
    names = names_in(corpus, options.only)
    if not names:
        parser.error(f"{corpus} has no file *.test that begins with {options.only or 'anything'}")
    target = Target(options.engine.lower(), options.strict, options.directory)
    parts = draw(corpus, names, options.sample, options.seed, target.engine)
    tallies: defaultdict[str, Tally] = defaultdict(Tally)
    for part, tally in run_parts(corpus, parts, target, options.jobs, console):
        tallies[folder_of(part.name)].add(tally)
    total = show(console, tallies)
    is_enough = is_above_bar(total, is_strict=options.strict)
    console.print(
        f"{total.run:,} records, files: {total.files}, seed {options.seed} as"
        f" {target.engine}: {total.share_passed:.3%} passed, {total.wrong} wrong:"
        f" {'enough' if is_enough else 'not enough'}; not run: {', '.join(TRIGGERS)}; {_FILE}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    return 0 if is_enough else 1


if __name__ == "__main__":
    sys.exit(main())
