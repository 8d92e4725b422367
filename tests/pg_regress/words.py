"""What a statement is, by its words alone: what it makes, changes and reads, and how it is sorted.

No parser: names are found where a relation, a function or a type may stand. A name that is missed
leaves a difference unexplained, so a mistake here is seen.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from herdpy.sql.reading.words import words_of
from tests.pg_regress.tokens import tokens_of

_RELATIONS = frozenset(("TABLE", "VIEW", "SEQUENCE"))
_CREATE_OPTIONS = words_of(
    """OR REPLACE GLOBAL LOCAL TEMP TEMPORARY UNLOGGED RECURSIVE MATERIALIZED UNIQUE CONSTRAINT
    FOREIGN TRUSTED PROCEDURAL DEFAULT EVENT"""
)
_ON_RELATION = frozenset(("INDEX", "TRIGGER", "RULE", "POLICY", "STATISTICS"))
_FUNCTIONS = frozenset(("FUNCTION", "PROCEDURE", "AGGREGATE"))
_TYPES = frozenset(("TYPE", "DOMAIN"))
_FROM_ENDS = words_of(
    """WHERE GROUP HAVING WINDOW ORDER LIMIT OFFSET FETCH FOR UNION INTERSECT EXCEPT SET RETURNING
    SELECT VALUES WHEN ;"""
)
_BEFORE_RELATIONS = words_of(
    """FROM JOIN INTO UPDATE TABLE ONLY LATERAL EXISTS TRUNCATE COPY ANALYZE VACUUM REFERENCES LIKE
    USING VIEW SEQUENCE OF PARTITION CLUSTER REINDEX LOCK"""
)
_ORDER_ENDS = frozenset(("LIMIT", "OFFSET", "FETCH", "FOR"))
_TAILS_OF_KEYS = frozenset(("ASC", "DESC", "NULLS", "USING"))


class Word(NamedTuple):
    """A token that is no space and no comment."""

    kind: str
    """word, quoted, string, number, cast or mark."""
    text: str
    """Of a word in capital letters; of a quoted name without its quotes."""
    name: str
    """Of a word or a quoted name the name it is; of others ""."""
    depth: int
    """How many parentheses are open around it."""


class Made(NamedTuple):
    """What a CREATE makes, or a DROP removes."""

    kind: str
    """relation, function, type, or other."""
    name: str


class Words:
    """The words of one statement."""

    def __init__(self, text: str) -> None:
        self.words = list(_words(text))

    def text(self, index: int) -> str:
        return self.words[index].text if 0 <= index < len(self.words) else ""

    def name(self, index: int) -> str:
        return self.words[index].name if 0 <= index < len(self.words) else ""

    @cached_property
    def head(self) -> str:
        """What kind of statement it is: SELECT, CREATE VIEW, WITH … INSERT, say."""
        first = self.text(0)
        if first == "(":
            return "SELECT"
        if first == "WITH":
            return next(
                (f"WITH … {word.text}" for word in self.words[1:]
                 if not word.depth and word.text in ("INSERT", "UPDATE", "DELETE", "MERGE")),
                "SELECT",
            )  # fmt: skip
        if first in ("CREATE", "DROP", "ALTER"):
            index = self._kind_index()
            is_long = self.text(index) in ("FOREIGN", "EVENT", "TEXT", "OPERATOR", "USER", "ACCESS")
            second = f"{self.text(index)} {self.text(index + 1)}" if is_long else self.text(index)
            return f"{first} {second}"
        if first == "SET" and self.text(1) in ("LOCAL", "SESSION"):
            return f"SET {self.text(1)}"
        return f"COMMENT ON {self.text(2)}" if first == "COMMENT" else first

    @property
    def is_explain(self) -> bool:
        return self.text(0) == "EXPLAIN"

    # --- settings ---

    @cached_property
    def setting(self) -> str | None:
        """The name of the setting that a SET or RESET changes; None where it is none."""
        if self.text(0) not in ("SET", "RESET"):
            return None
        index = 2 if self.text(1) in ("LOCAL", "SESSION") and self.text(2) != "AUTHORIZATION" else 1
        first, second = self.text(index), self.text(index + 1)
        if first in ("TRANSACTION", "CONSTRAINTS", "CHARACTERISTICS", "ALL"):
            return None
        longer = {
            "TIME": "timezone",
            "SESSION": "session_authorization",
            "NAMES": "client_encoding",
        }
        if (first, second) in (("TIME", "ZONE"), ("SESSION", "AUTHORIZATION")) or first == "NAMES":
            return longer[first]
        return ".".join(filter(None, (self.name(index), second == "." and self.name(index + 2))))

    @property
    def is_local_setting(self) -> bool:
        return self.text(1) == "LOCAL"

    # --- what it makes and changes ---

    def _kind_index(self) -> int:
        index = 1
        while self.text(index) in _CREATE_OPTIONS and index < len(self.words) - 1:
            if self.text(index) == "FOREIGN" and self.text(index + 1) == "DATA":
                break
            index += 1
        return index

    def _name_at(self, index: int) -> tuple[str, int]:
        """Return the last part of a name that stands there, and where it ends."""
        while self.text(index) in ("IF", "NOT", "EXISTS", "CONCURRENTLY", "ONLY", "LATERAL"):
            index += 1
        while self.text(index + 1) == ".":
            index += 2
        return self.name(index), index + 1

    @cached_property
    def made(self) -> list[Made]:
        """What it creates, or drops."""
        first = self.text(0)
        if first in ("CREATE", "DROP"):
            index = self._kind_index()
            kind = self.text(index)
            names = [self._name_at(index + 1)]
            while first == "DROP" and self.text(names[-1][1]) == ",":
                names.append(self._name_at(names[-1][1] + 1))
            what = _kind_of(kind)
            return [Made(what, name) for name, _ in names if name and kind not in _ON_RELATION]
        into = self._into()
        if into is None:
            return []
        return [Made("relation", into)] if self.head == "SELECT" else []

    def _into(self) -> str | None:
        """Return the table that SELECT … INTO makes."""
        for index, word in enumerate(self.words):
            if word.text == "INTO" and not word.depth:
                place = index + 1
                while self.text(place) in ("TEMP", "TEMPORARY", "UNLOGGED", "TABLE", "LOCAL"):
                    place += 1
                return self._name_at(place)[0]
        return None

    @cached_property
    def changed(self) -> set[str]:
        """The relations whose rows or definition it changes."""
        first, found = self.text(0), set[str]()
        if first == "ALTER" or (first == "DROP" and self.text(self._kind_index()) in _RELATIONS):
            found.add(self._name_at(self._kind_index() + 1)[0])
        for index, word in enumerate(self.words):
            before = self.text(index - 1)
            is_target = (
                (word.text == "INTO" and before in ("INSERT", "MERGE"))
                or (word.text == "FROM" and before == "DELETE")
                or (word.text == "UPDATE" and before not in ("FOR", "DO", "KEY", "ON", "BEFORE",
                                                             "AFTER", "OR", "OF"))
                or (word.text in ("TRUNCATE", "COPY", "REFRESH") and not index)
            )  # fmt: skip
            if is_target:
                place = index + 1
                while self.text(place) in ("TABLE", "MATERIALIZED", "VIEW"):
                    place += 1
                found.add(self._name_at(place)[0])
        if first in ("CREATE", "ALTER"):  # of a foreign key, or of a child, the other table, too
            found.update(
                self._name_at(index + 1)[0]
                for index, word in enumerate(self.words)
                if word.text in ("REFERENCES", "INHERIT")
                or (word.text == "PARTITION" and self.text(index - 1) in ("ATTACH", "DETACH"))
            )
        if first == "TRUNCATE":
            found.update(word.name for word in self.words[1:])
        kind = self.text(self._kind_index())
        is_seen = kind in _ON_RELATION and (kind != "INDEX" or self.text(1) == "UNIQUE")
        if first in ("CREATE", "DROP") and is_seen:
            found.update(
                self._name_at(index + 1)[0]
                for index, word in enumerate(self.words)
                if word.text in ("ON", "TO", "FROM") and not word.depth and index > 2
            )
        return found - {""}

    @property
    def shows_others(self) -> bool:
        """Whether it makes a relation that shows other ones' rows, or whose rows others show."""
        words = {word.text for word in self.words if word.kind == "word"}
        is_made = any(made.kind == "relation" for made in self.made)
        return is_made and (self.head.endswith("VIEW") or bool(words & {"INHERITS", "PARTITION"}))

    # --- what it names ---

    @cached_property
    def relations(self) -> set[str]:
        """The names that stand where relations do."""
        found: set[str] = set()
        lists: list[bool] = [False]
        """Of each open parenthesis, whether a list of relations goes on in it."""
        for index, word in enumerate(self.words):
            before = self.text(index - 1)
            if word.text == "(":
                lists.append(lists[-1] and before in ("FROM", ",", "(", "JOIN", "INHERITS"))
            elif word.text == ")":
                if len(lists) > 1:
                    lists.pop()
            elif word.text in ("FROM", "TRUNCATE", "USING", "TABLE", "INHERITS"):
                lists[-1] = True
            elif word.text in _FROM_ENDS:
                lists[-1] = False
            elif word.name and (
                before in _BEFORE_RELATIONS or (lists[-1] and before in (",", "("))
            ):
                found.add(self._name_at(index)[0])
        found.update(each.name for each in self.made if each.kind == "relation")
        return (found | self.changed) - {""}

    @cached_property
    def functions(self) -> set[str]:
        """The names in front of a parenthesis."""
        return {
            word.name
            for word, following in zip(self.words, self.words[1:], strict=False)
            if word.name and following.text == "("
        } | {each.name for each in self.made if each.kind == "function"}

    @cached_property
    def strings(self) -> set[str]:
        """What stands in strings, where names may: nextval('name')."""
        return {word.text.strip("'").lower() for word in self.words if word.kind == "string"}

    @cached_property
    def names(self) -> set[str]:
        return {word.name for word in self.words if word.name}

    # --- what it shows, and how it is sorted ---

    @cached_property
    def _outermost(self) -> list[Word]:
        """The words without parentheses around all of them."""
        words = self.words
        while len(words) > 1 and words[0].text == "(" and _is_closed_by_last(words):
            words = [word._replace(depth=word.depth - 1) for word in words[1:-1]]
        return words

    @cached_property
    def outputs(self) -> list[tuple[Word, ...]]:
        """The items of the select list of a SELECT without WITH, each without what follows AS."""
        words = self._outermost
        if not words or words[0].text != "SELECT":
            return []
        found: list[list[Word]] = [[]]
        is_named = False
        for word in words[1:]:
            if not word.depth and word.text in ("FROM", "WHERE", "ORDER", "UNION"):
                break
            if not word.depth and word.text == ",":
                found.append([])
                is_named = False
            else:
                is_named |= not word.depth and word.text == "AS"
                found[-1] += [] if is_named else [word]
        return [tuple(item) for item in found]

    @cached_property
    def order(self) -> list[tuple[Word, ...]] | None:
        """The keys of the outermost ORDER BY, each without ASC, DESC and NULLS; None: it has none.

        Without parentheses around the whole query, and of a query alone.
        """
        words = self._outermost
        if not words or words[0].text not in ("SELECT", "WITH", "VALUES", "TABLE", "("):
            return None
        start = max(
            (index for index, word in enumerate(words[:-1])
             if word.text == "ORDER" and not word.depth and words[index + 1].text == "BY"),
            default=None,
        )  # fmt: skip
        if start is None:
            return None
        keys: list[list[Word]] = [[]]
        for word in words[start + 2 :]:
            if not word.depth and word.text in _ORDER_ENDS:
                break
            if not word.depth and word.text == ",":
                keys.append([])
            else:
                keys[-1].append(word)
        return [tuple(_without_tail(key)) for key in keys]


def _kind_of(kind: str) -> str:
    if kind in _RELATIONS:
        return "relation"
    if kind in _FUNCTIONS:
        return "function"
    return "type" if kind in _TYPES else "other"


def _words(text: str) -> Iterator[Word]:
    depth = 0
    for kind, found, _ in tokens_of(text):
        if kind in ("space", "comment"):
            continue
        depth -= found in (")", "]")
        if kind == "word":
            yield Word(kind, found.upper(), found.lower(), depth)
        elif kind == "quoted":
            name = found[1:-1].replace('""', '"')
            yield Word(kind, name, name, depth)
        else:
            yield Word(kind, found, "", depth)
        depth += found in ("(", "[")


def _is_closed_by_last(words: Sequence[Word]) -> bool:
    """Tell whether the parenthesis that is first is closed by the last word."""
    return words[-1].text == ")" and all(word.depth > words[0].depth for word in words[1:-1])


def _without_tail(key: Sequence[Word]) -> Iterator[Word]:
    for word in key:
        if not word.depth and word.text in _TAILS_OF_KEYS:
            return
        yield word
