"""The `herdpy` command: `herdpy shell`, `herdpy demo`, `herdpy --version`.

This module imports nothing that the base install lacks, so that a missing extra is told kindly.
Exit codes: 0 all went well, 1 a statement or the database failed, 2 wrong usage.
"""

import sys

from bookie.extras import find_missing


def main() -> None:
    """Run the command line in sys.argv and exit."""
    is_server = sys.argv[1:2] == ["serve"]
    missing = find_missing(
        "server" if is_server else "cli", "`herdpy serve`" if is_server else "the command line"
    )
    if missing is not None:
        sys.exit(f"herdpy: {missing.problem}.\n{missing.remedy}")
    from herdpy.cli.app import app

    app(prog_name="herdpy")


if __name__ == "__main__":
    main()
