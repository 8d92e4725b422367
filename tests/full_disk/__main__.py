"""`python -m tests.full_disk [--sizes 12 64 256]`: a database's whole life on full real disks.

Each size is a tmpfs of so many MiB, in a mount namespace of this program's own; skipped aloud where
that is not allowed. life.py says what is tried. Prints a table, and where a promise was broken.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tests.crash.kill import BrokenPromiseError
from tests.fixtures.seed_runner import table
from tests.full_disk.life import Life, work

_INSIDE = "HERDPY_FULL_DISK_INSIDE"


def in_own_namespace() -> int | None:
    """Run this program again where its mounts are its own; None: it runs there, or cannot."""
    if _INSIDE in os.environ or shutil.which("unshare") is None:
        return None
    command = ["unshare", "--mount", sys.executable, "-m", "tests.full_disk", *sys.argv[1:]]
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        return None
    return subprocess.run(command, env={**os.environ, _INSIDE: "1"}, check=False).returncode


def run(size_mib: int, console: Console) -> bool | None:
    """Live one life; None: nothing may be mounted here."""
    folder = Path(tempfile.mkdtemp(prefix="herdpy-full-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            console.print(f"*** SKIPPED: no right to mount a tmpfs ({done.stderr.strip()})")
            return None
        life = Life(folder, size_mib, console.print)
        problem = ""
        try:
            life.run()
        except BrokenPromiseError as error:
            problem = str(error)
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        rows = [
            (row.step, f"{row.acknowledged:,}", f"{row.refused:,}", f"{row.free_bytes:,}",
             f"{row.seconds:.1f}")
            for row in life.rows
        ]  # fmt: skip
        columns = ("step", " rows", " refused", " bytes free", " seconds")
        console.print(table(f"a life on {size_mib} MiB", columns, rows))
        if problem:
            console.print(f"[red]{size_mib} MiB: {problem}[/red]", markup=True)
        return not problem
    finally:
        folder.rmdir()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.full_disk", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[12, 64, 256], help="in MiB")
    parser.add_argument("--work", nargs=2, metavar=("DIRECTORY", "FIRST"), help=argparse.SUPPRESS)
    found = parser.parse_args()
    if found.work:
        work(found.work[0], int(found.work[1]))
        return 0
    again = in_own_namespace()
    if again is not None:
        return again
    console = Console()
    results = [run(size_mib, console) for size_mib in found.sizes]
    broken = sum(result is False for result in results)
    console.print(f"{len(results)} lives: {broken} broken promises")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
