"""A rule's own test fails once the rule is gone: faults planted into a copy of the checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bookie

ROOT = Path(bookie.__file__).parent.parent
"""The checkout whose `bookie` is imported: its tests are the ones that are tried."""

_COPIED = ("bookie", "tests", "pyproject.toml")


class Checkout:
    """A copy of what a test of bookie/ needs; its files may be changed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        leave_out = shutil.ignore_patterns("__pycache__", "benchmarks", "interop", "node_modules")
        for name in _COPIED:
            source, copy = ROOT / name, directory / name
            if source.is_dir():
                shutil.copytree(source, copy, ignore=leave_out)
            else:
                shutil.copy(source, copy)

    def replace(self, path: str, old: str, new: str) -> None:
        """Plant: put `new` in the place of the only `old` of a file."""
        file = self.directory / path
        text = file.read_text()
        assert text.count(old) == 1, f"{path}: expected {old!r} once, found {text.count(old)}"
        file.write_text(text.replace(old, new))

    def failures(self, test: str) -> str | None:
        """Run one test over the copy; its output when it failed, None when it passed."""
        path = [str(self.directory), str(ROOT), str(ROOT / "spark_connector")]
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode in (0, 1), run.stdout + run.stderr
        assert f"1 {'failed' if run.returncode else 'passed'}" in run.stdout, run.stdout
        return run.stdout if run.returncode else None


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "checkout")


@pytest.mark.finding("H2")
def test_h2_reading_without_sync_after_a_lost_answer_is_noticed(checkout: Checkout) -> None:
    test = (
        "tests/unit/bookie/metadata/test_ledgers.py"
        "::test_a_stale_read_after_a_lost_answer_is_not_believed"
    )
    assert checkout.failures(test) is None
    checkout.replace(
        "bookie/metadata/ledgers.py",
        "        await self._store.sync(path)\n        found, stat = ",
        "        found, stat = ",
    )
    assert checkout.failures(test) is not None, "the test passes with the sync taken out"


@pytest.mark.finding("H3")
def test_h3_a_recovery_that_takes_fenced_for_a_failed_bookie_is_noticed(checkout: Checkout) -> None:
    test = (
        "tests/unit/bookie/ledger/test_recovery.py"
        "::test_g17_a_bookie_that_holds_the_ledger_for_deleted_ends_recovery"
    )
    assert checkout.failures(test) is None
    checkout.replace(
        "bookie/ledger/recovery.py",
        "if status is Status.FENCED:",
        "if status is Status.FENCED and False:",
    )
    assert checkout.failures(test) is not None, "the test passes with the branch unreachable"
