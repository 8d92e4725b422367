"""Kinds of refusals: an error's SQLSTATE and message, without what is the statement's own in it."""

import re

from herdpy.sql.reading.words import NO_NAMES, words_of
from tests.pg_regress.comparison import Reply
from tests.pg_regress.words import Words

_CLAUSES = words_of(
    """ADD BEFORE BY CASCADE COLUMN CYCLE DATA DEPTH GENERATED GROUPS IF INCLUDE INHERITS MATCHED
    OPTIONS OVER OWNED PARTITION RANGE RECURSIVE RENAME REPEATABLE RESTART ROWS SCHEMA SEARCH SET
    START TYPE VALUES VIEW WITHOUT"""
)
_ONE_NAME = {
    "TEMPORARY": "TEMP", "OR REPLACE ": "", "type smallint": "type int2",
    "type real": "type float4", "type character": "type char", "type bpchar": "type char",
    "type decimal": "type numeric", "timestamp(…) without time zone": "timestamp(…)",
    "timestamp(…) with time zone": "timestamp(…)",
}  # fmt: skip
"""Spellings of one feature."""
_NAME = re.compile(r'"(?!pg_|information_schema)[^"]*"')
_STRING = re.compile(r"'[^']*'")
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d.,]*(?![\w])")
_FUNCTION = re.compile(r"^(function \S+?)\(.*\) does")
_NEAR = re.compile(r'^syntax error at or near (?:"(?P<token>[^"]*)"|(?P<what>the end|a string))')


def reason_of(words: Words, ours: Reply) -> str:
    """Return the kind of our answer: the same for what the same feature would answer."""
    sqlstate, message = ours.sqlstate, ours.answer.message.partition("\n")[0]
    if sqlstate is None:
        return "another result"
    near = _NEAR.match(message)
    if near is not None:
        return f"{sqlstate} {words.head}: syntax error at {_token(near)}"
    message = _FUNCTION.sub(r"\1(…) does", message)
    message = _NUMBER.sub("…", _STRING.sub("'…'", _NAME.sub('"…"', message)))
    for spelling, name in _ONE_NAME.items():
        message = message.replace(spelling, name)
    return f"{sqlstate} {message}"


def _token(near: re.Match[str]) -> str:
    """Return a word of SQL's own and a mark as they are; of a name that it is one."""
    token = near["token"]
    if token is None:
        return near["what"]
    if token.upper() in NO_NAMES | _CLAUSES or not re.search(r"\w", token):
        return token.upper()
    return "a number" if token[0].isdigit() else "a name"
