"""The `bookie` command: servers, ledgers, bookies and cookies from a shell.

This module imports nothing that the base install lacks, so that a missing extra is told kindly.
Exit codes: 0 all went well, 1 it failed, 2 wrong usage, 3 `bookies at-risk`: not safe to leave, 130
stopped by Ctrl-C.
"""

import importlib.util
import sys

_NEEDED = ("click", "prometheus_client")


def main() -> None:
    """Run the command line in sys.argv and exit."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(
            f"bookie: the command line needs {' and '.join(missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not installed.\n"
            f"Install the extra:  {sys.executable} -m pip install 'herdpy-db[cli]'"
        )
    from bookie.admin.app import app

    app(prog_name="bookie")


if __name__ == "__main__":
    main()
