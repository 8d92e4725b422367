"""`python -m tests.pg_oracle --runs 50000 --seed 1 --jobs 2`: the same on herdpy and PostgreSQL?

Starts a PostgreSQL of its own (Debian's package; skipped aloud where there is none), runs one
generated case for each seed on both, and prints what was generated, what of it differs by design
(docs/reference/sql.md), and every other difference as its smallest expression. Exit code 1 for
those, where more than 2 % of the cases differ by design, or where a kind was never generated.
"""

import sys
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path

from rich.markup import escape

from tests.fixtures.postgres import NoPostgresError, postgres_folder, running_postgres, version
from tests.fixtures.seed_runner import (
    FINDINGS_MAX,
    Options,
    print_findings,
    run_chunks,
    search_plants,
    table,
    trace,
)
from tests.pg_oracle.cases import RARE_ROUNDS, ROOTS
from tests.pg_oracle.dml import DML_KINDS
from tests.pg_oracle.plants import PLANTS
from tests.pg_oracle.rules import GROUPS
from tests.pg_oracle.run_seed import run_alone, run_chunk, search

_MODULE = "tests.pg_oracle"
DOCUMENTED_SHARE_MAX = 0.02
_LIST = Path("build/pg-oracle.txt")


def run_all(options: Options, conninfo: str) -> int:
    """Run the seeds, print the tables and the differences; the exit code."""
    kinds: Counter[str] = Counter()
    documented: Counter[str] = Counter()
    findings: dict[int, str] = {}
    count = 0
    with closing(run_chunks(options, partial(run_chunk, conninfo))) as chunks:
        for chunk in chunks:
            count += chunk.runs
            kinds.update(chunk.kinds)
            documented.update(chunk.documented)
            findings.update(chunk.findings)
            if len(findings) >= FINDINGS_MAX:
                break
    console = options.console
    console.print(
        table(
            "what was generated", ("group", " kinds", " never", " times", " least"), _groups(kinds)
        )
    )
    shares = [
        (rule[:90], str(number), f"{number / count:.2%}")
        for rule, number in documented.most_common()
    ]
    console.print(table("what differs by design", ("rule", " cases", " share"), shares))
    print_findings(console, _MODULE, findings)
    share = documented.total() / count
    is_long = count >= RARE_ROUNDS * len(ROOTS)
    missing = sorted(_expected() - kinds.keys()) if is_long else []
    for label in missing:
        console.print(f"[red]never generated: {label}[/red]", highlight=False)
    _LIST.parent.mkdir(exist_ok=True)
    _LIST.write_text("".join(f"{number:7} {label}\n" for label, number in kinds.most_common()))
    console.print(
        f"{count} cases from seed {options.seed}, {documented.total()} ({share:.2%}) differ by"
        f" design (at most {DOCUMENTED_SHARE_MAX:.0%}): {len(findings)} findings; kinds: {_LIST}"
    )
    return 1 if findings or missing or share > DOCUMENTED_SHARE_MAX else 0


def run_plants(options: Options, conninfo: str) -> int:
    """Search every planted fault; exit code 1 when one is not found."""
    found = search_plants(options, partial(search, conninfo))
    rows: list[tuple[str, str, str]] = []
    for name, chunk in found.items():
        how = next(iter(chunk.findings.values()), "").partition("\n")[0]
        runs = str(chunk.runs) if chunk.findings else f"[red]not in {chunk.runs}[/red]"
        rows.append((name, runs, escape(how[:80])))
    options.console.print(table("planted faults", ("plant", " found by case", "in"), rows))
    return 0 if all(chunk.findings for chunk in found.values()) else 1


def _expected() -> set[str]:
    return {rule.label for rules in GROUPS.values() for rule in rules} | set(DML_KINDS)


def _groups(kinds: Counter[str]) -> list[tuple[str, ...]]:
    groups = {name: {rule.label for rule in rules} for name, rules in GROUPS.items()}
    groups["changes of rows"] = set(DML_KINDS)
    return [
        (name, str(len(labels)), str(sum(not kinds[label] for label in labels)),
         str(sum(kinds[label] for label in labels)), str(min(kinds[label] for label in labels)))
        for name, labels in groups.items()
    ]  # fmt: skip


def main() -> int:
    options = Options.of(_MODULE, __doc__, PLANTS)
    try:
        with (
            postgres_folder("pg-oracle-") as folder,
            running_postgres(folder / "postgres") as (conninfo, _),
        ):
            options.console.print(version())
            if options.is_trace:
                trace(options, PLANTS, partial(run_alone, conninfo))
                return 0
            return (run_plants if options.plants else run_all)(options, conninfo)
    except NoPostgresError as error:
        options.console.print(f"*** SKIPPED: no PostgreSQL to compare with: {error}", style="red")
        return 0


if __name__ == "__main__":
    sys.exit(main())
