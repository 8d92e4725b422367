"""The `herdpy` command: `herdpy shell`, `herdpy demo`, `herdpy --version`.

This module imports nothing that the base install lacks, so that a missing extra is told kindly.
Exit codes: 0 all went well, 1 a statement or the database failed, 2 wrong usage.
"""

import importlib.util
import sys

_NEEDED = ("click", "prompt_toolkit", "pygments")


def main() -> None:
    """Run the command line in sys.argv and exit."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(missing_extra("cli", "the shell", missing))
    from herdpy.cli.app import app

    app(prog_name="herdpy")


def missing_extra(extra: str, what: str, missing: list[str]) -> str:
    """Return what to say when packages of an extra are not installed."""
    return (
        f"herdpy: {what} needs {' and '.join(missing)}, which "
        f"{'is' if len(missing) == 1 else 'are'} not installed.\n"
        f"Install the extra:  {sys.executable} -m pip install 'herdpy-db[{extra}]'"
    )


if __name__ == "__main__":
    main()
