"""--journal and --ledgers: where a bookie's journal and entry logs are, if not in --data."""

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from bookie.config import parse_ledger_directory


def directory_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --journal (journal: Path | None) and --ledgers (ledgers: tuple of texts)."""
    ledgers = click.option(
        "--ledgers",
        multiple=True,
        metavar="DIRECTORY[=WEIGHT]",
        help="A directory for entry logs; several, best on a disk each, share them by weight (1). "
        "May be repeated.  [default: --data]",
    )
    journal = click.option(
        "--journal",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIRECTORY",
        help="The directory for the journal, best on a disk of its own.  [default: --data]",
    )
    return journal(ledgers(command))


def absolute_ledgers(texts: Sequence[str]) -> tuple[str, ...]:
    """Return what --ledgers gave, with absolute paths, as BookieConfig takes it."""
    pairs = map(parse_ledger_directory, texts)
    return tuple(f"{Path(path).resolve()}={weight:g}" for path, weight in pairs)
