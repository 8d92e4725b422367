"""A dump of all tablespaces: one script, which the shell runs in a new directory.

First what makes the tablespaces, with their limits, and the dump of `default`; then for each other
one the shell's command `.tablespace NAME`, and its dump. Each dump is as of its own moment, and is
begun when the one before it has been read.
"""

import shlex
from collections.abc import Generator, Iterator

from herdpy.driver.backup_sets import Exporting, read_export
from herdpy.errors import NotSupportedError, OperationalError
from herdpy.model.tablespace_limits import tablespace_limits
from herdpy.sql.text import name_text
from herdpy.storage.tablespace_list import DEFAULT, TablespaceEntry, decode_list


class AllDumps:
    """An Export of `default`'s session. One thread at a time; close() ends what is under way."""

    byte_count = 0
    """How long it will be is not known."""

    def __init__(self, session: Exporting) -> None:
        """Ask for the list of tablespaces. 42501; 0A000: a name that a script cannot have."""
        self._session = session
        self._entries = decode_list(read_export(session.export("tablespaces"))).present
        self._pieces = self._all()
        for entry in self._entries:
            if not entry.name.isprintable():
                raise NotSupportedError(
                    f"the tablespace {entry.name!r} cannot be named in a script of all",
                    hint="Dump it alone, with --tablespace, or rename it.",
                )

    def pieces(self) -> Iterator[bytes]:
        """Yield UTF-8 text, once."""
        return self._pieces

    def _all(self) -> Generator[bytes]:
        for entry in self._entries[1:]:
            yield f"{create_tablespace_text(entry)};\n".encode()
        for entry in self._entries:
            try:
                export = self._session.export("dump", entry.id.hex())
            except OperationalError as error:
                if error.sqlstate == "3D000" and entry.name != DEFAULT:
                    yield f"\n-- {name_text(entry.name)} was dropped meanwhile\n".encode()
                    continue
                raise
            try:
                if entry.name != DEFAULT:
                    yield f"\n.tablespace {shlex.quote(entry.name)}\n".encode()
                yield from export.pieces()
            finally:
                export.close()

    def close(self) -> None:
        """End what is under way; repeatable."""
        self._pieces.close()


def create_tablespace_text(entry: TablespaceEntry) -> str:
    """Return the statement that makes an empty tablespace of this name and these limits."""
    values = [(name, getattr(entry.limits, name)) for name in tablespace_limits]
    limits = ", ".join(f"{name} = {value}" for name, value in values if value is not None)
    made = f"CREATE TABLESPACE IF NOT EXISTS {name_text(entry.name)}"
    return f"{made} WITH ({limits})" if limits else made
