"""What earlier statements left different on the two servers, and which of them is the cause.

A statement that PostgreSQL did and herdpy did not, or the other way round, leaves what it makes or
changes different; a later statement that names it differs for that reason and not for its own.
"""

import re
from typing import NamedTuple

from tests.pg_regress.comparison import Reply
from tests.pg_regress.words import Made, Words

_OWN_REFUSALS = ("0A000", "42601")
"""A statement that is refused with these would be refused anyway."""
_MISSING = ("42P01", "42704", "42883")
_AT_THE_END = ("COMMIT", "END")
"""What looks at all that its transaction has done: constraints that are deferred."""
READ_BY_IT = ("standard_conforming_strings", "backslash_quote", "escape_string_warning")
"""Settings by which strings are read; the rest of a script is written for what it has set."""
_WORD = re.compile(r"\w+")


class Cause(NamedTuple):
    """The first statement of a chain of consequences."""

    where: str
    """File and line."""
    reason: str
    """What kind of refusal it is."""


class Causes:
    """Names of what is not the same on both servers, each with its causes, the last one on top.

    A name may have several: of a table that was refused, and of a temporary one in front of it.
    """

    def __init__(self) -> None:
        self._relations: dict[str, list[Cause]] = {}
        self._functions: dict[str, list[Cause]] = {}
        self._others: dict[str, list[Cause]] = {}
        self._settings: dict[str, Cause] = {}
        self._bases: dict[str, set[str]] = {}
        """Of views, children and parts that were refused: the relations whose rows they show."""
        self._of_transaction: Cause | None = None

    def of(self, words: Words, ours: Reply) -> Cause | None:
        """Return why a statement may differ that had this answer of ours; None: by itself."""
        if ours.sqlstate in _OWN_REFUSALS:
            return None
        found = self._of_setting(words, ours) or self._of_names(words, ours)
        if found is None and (words.head in _AT_THE_END or words.text(1) == "CONSTRAINTS"):
            found = self._of_transaction
        self._of_transaction = self._of_transaction or found
        return found

    def _of_names(self, words: Words, ours: Reply) -> Cause | None:
        told = set(_WORD.findall(ours.answer.message.lower())) if ours.sqlstate else set[str]()
        named = {
            "42P01": ((self._relations, told),),
            "42704": ((self._others, told),),
            "42883": ((self._functions, told),),
        }
        anything = (
            (self._relations, words.relations | words.strings | told),
            (self._functions, words.functions),
            (self._others, words.names),
        )
        for known, names in named.get(ours.sqlstate or "", anything):
            for name in sorted(names & known.keys()):
                return known[name][-1]
        return None

    def _of_setting(self, words: Words, ours: Reply) -> Cause | None:
        if words.head == "SHOW":
            return self._settings.get(words.name(1))
        is_mode = (words.text(0), words.text(1)) == ("SET", "TRANSACTION")
        if is_mode or (ours.sqlstate or "").startswith("25"):  # of the transaction's state
            return self._settings.get("transaction_read_only")
        strings = (word.text for word in words.words if word.kind == "string")
        if not any("\\" in text and text[0] not in "eE" for text in strings):
            return None
        return next((self._settings[name] for name in READ_BY_IT if name in self._settings), None)

    def note(self, words: Words, ours: Reply, theirs: Reply, cause: Cause) -> None:
        """Remember what a statement with different outcomes leaves different."""
        if ours.sqlstate is not None and theirs.sqlstate is not None:
            return
        self._of_transaction = self._of_transaction or cause
        if words.head.startswith("DROP") and ours.sqlstate in _MISSING:
            self.forget(words)
            return
        for made in words.made:
            self._known(made).setdefault(made.name, []).append(cause)
            if words.shows_others:
                self._bases[made.name] = words.relations - {made.name}
        for name in self._with_bases(words.changed):
            self._relations.setdefault(name, [cause])

    def note_setting(self, name: str, cause: Cause) -> None:
        """Remember a setting that PostgreSQL has alone."""
        self._settings.setdefault(name, cause)

    def forget_setting(self, name: str) -> None:
        """Take a setting as the same on both servers."""
        self._settings.pop(name, None)

    def forget(self, words: Words) -> None:
        """Take what both servers have made, or dropped, as the same from now on."""
        for made in words.made:
            known = self._known(made)
            if made.name in known:
                known[made.name].pop()
                if not known[made.name]:
                    del known[made.name]

    def leave_transaction(self) -> None:
        """Take note that neither server is in a transaction."""
        self._of_transaction = None

    def _with_bases(self, names: set[str]) -> set[str]:
        found: set[str] = set()
        waiting = [*names]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self._bases.get(name, ())
        return found

    def _known(self, made: Made) -> dict[str, list[Cause]]:
        return {"relation": self._relations, "function": self._functions}.get(
            made.kind, self._others
        )
