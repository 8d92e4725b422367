"""Run the tests of findings here and on an older commit: `make findings OLD=62f20b8`.

Each has to pass here and to fail there by its own assertion (judgement.py), and every id of
expected_ids.txt has to have a test. Without --old they run here only. The table of ids and tests is
written to docs/reference/findings.md. Ends with 1 when anything is not as it has to be.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.findings.judgement import EXPECTED, FOLDER, Outcome, Row, Run, expected_ids, judge
from tests.fixtures.old_commit import (
    ROOT,
    NoOldCommitError,
    OldCommit,
    environment_of,
    old_commit,
)
from tests.style.generate_reference import FOLDER as REFERENCE
from tests.style.generate_reference import findings_page

_NO_TESTS = 5
"""How pytest ends that has found none."""
_COMMON = ["-q", "-n", "2", "--tb=line", "-m", "finding", "-p", "finding_outcomes"]
# By a signal: the test that took too long fails, and the others of its process go on.
_COMMON += ["--timeout=120", "--timeout-method=signal"]


def run_here() -> Run:
    command = [sys.executable, "-m", "pytest", *_COMMON, str(FOLDER)]
    return _run(command, ROOT, environment_of(ROOT, FOLDER))


def run_there(commit: OldCommit) -> Run:
    """Run copies of the tests, which stand outside of the commit's own tests and settings."""
    copy = commit.folder / "findings"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    markers = project["tool"]["pytest"]["ini_options"]["markers"]
    settings = copy / "pytest.ini"
    settings.write_text(
        "[pytest]\n"
        "addopts = --strict-markers --import-mode=importlib -p no:cacheprovider\n"
        "markers =\n" + "".join(f"    {marker}\n" for marker in markers)
    )
    command = [commit.python, "-m", "pytest", *_COMMON, "-c", str(settings), "--rootdir", str(copy)]
    return _run([*command, str(copy)], copy, commit.environment(copy))


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> Run:
    with tempfile.TemporaryDirectory(prefix="findings-") as scratch:
        path = Path(scratch) / "outcomes.json"
        ran = subprocess.run(
            [*command, "--outcomes", str(path)], cwd=folder, env=environment, check=False
        )
        if not path.exists() or ran.returncode not in (0, 1, 2, _NO_TESTS):
            raise SystemExit(f"findings: pytest ended with {ran.returncode} in {folder}")
        document = json.loads(path.read_text())
    return Run(tuple(Outcome.of(each) for each in document["tests"]), tuple(document["broken"]))


def show(console: Console, rows: list[Row], old: OldCommit | None) -> None:
    table = Table("id", "test", *(() if old is None else (old.name,)), "here")
    for row in rows:
        cells = [" ".join(row.ids), row.test, *(() if row.old is None else (row.old,)), row.new]
        table.add_row(*map(escape, cells), style="red" if row.problem else None)
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.findings", description=__doc__)
    parser.add_argument("--old", metavar="COMMIT", help="where each of them has to fail")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        commit = old_commit(options.old) if options.old else None
    except NoOldCommitError as error:
        raise SystemExit(f"findings: {error}") from error
    console.print("here:", style="bold")
    new = run_here()
    old: Run | None = None
    if commit is not None:
        console.print(f"on {commit.name}, where each has to fail:", style="bold")
        old = run_there(commit)
    rows, problems = judge(expected_ids(EXPECTED.read_text()), new, old)
    show(console, rows, commit)
    (REFERENCE / "findings.md").write_text(findings_page())
    for problem in problems:
        console.print(f"*** {escape(problem)}", style="red")
    console.print(f"{len(rows)} tests, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
