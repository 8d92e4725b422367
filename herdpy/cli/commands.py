"""The `herdpy` command: `herdpy shell`, `herdpy demo`, `herdpy --version`.

This module imports nothing that the base install lacks, so that a missing extra is told kindly.
Exit codes: 0 all went well, 1 a statement or the database failed, 2 wrong usage.
"""

import sys

from bookie.extras import find_missing

_EXTRAS = {
    "serve": ("server",),
    "node": ("server", "bookie"),
    "cluster": ("server", "bookie"),
    "tablespace": ("server", "bookie"),
}
"""What a command needs; `cli` where it is not named."""


def main() -> None:
    """Run the command line in sys.argv and exit."""
    command = next(iter(sys.argv[1:]), "")
    needed = _EXTRAS.get(command, ("cli",))
    what = f"`herdpy {command}`" if command in _EXTRAS else "the command line"
    missing = next(filter(None, (find_missing(extra, what) for extra in needed)), None)
    if missing is not None:
        sys.exit(f"herdpy: {missing.problem}.\n{missing.remedy}")
    from herdpy.cli.app import app

    app(prog_name="herdpy")


if __name__ == "__main__":
    main()
