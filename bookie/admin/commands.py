"""The `bookie` command: servers, ledgers, bookies and cookies from a shell.

This module imports nothing that the base install lacks, so that a missing extra is told kindly.
Exit codes: 0 all went well, 1 it failed, 2 wrong usage, 3 `bookies at-risk`: not safe to leave, 130
stopped by Ctrl-C.
"""

import sys

from bookie.extras import find_missing


def main() -> None:
    """Run the command line in sys.argv and exit."""
    missing = find_missing("bookie", "the command line")
    if missing is not None:
        sys.exit(f"bookie: {missing.problem}.\n{missing.remedy}")
    from bookie.admin.app import app

    app(prog_name="bookie")


if __name__ == "__main__":
    main()
