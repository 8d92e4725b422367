"""Tokens to sqlglot's tree. sqlglot is a reader only: nothing of it is subclassed or edited."""

import bisect
import difflib
import itertools
from collections.abc import Collection, Iterable

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokens import TokenType  # pyright: ignore[reportPrivateImportUsage]

from herdpy.errors import NotSupportedError, OperationalError, ProgrammingError
from herdpy.sql.tokens import Scanned, folded, postgres, token_name

# A clause that we do not have: sqlglot's name of it, and the ways in which it is written.
_CLAUSES = {
    "alternative": ("OR REPLACE", "OR IGNORE", "OR ABORT", "OR FAIL", "OR ROLLBACK"),
    "catalog": ("a schema",), "cluster": ("CLUSTER BY",), "conflict": ("ON CONFLICT",),
    "connect": ("CONNECT BY",), "constraint": ("ON CONSTRAINT",), "db": ("a schema",),
    "distribute": ("DISTRIBUTE BY",), "except_": ("EXCEPT", "EXCLUDE"), "hints": ("hints",),
    "index_predicate": ("WHERE",), "joins": ("JOIN",), "laterals": ("LATERAL VIEW",),
    "limit_options": ("PERCENT", "WITH TIES"), "ordinality": ("WITH ORDINALITY",),
    "locks": ("FOR UPDATE", "FOR SHARE", "FOR NO KEY UPDATE", "FOR KEY SHARE"),
    "order": ("ORDER BY",), "pivots": ("PIVOT", "UNPIVOT"), "sample": ("TABLESAMPLE", "SAMPLE"),
    "sort": ("SORT BY",), "tables": ("a table before FROM",), "with_": ("WITH",),
    "version": ("a version of the table",),
}  # fmt: skip
INSTEAD_OF_REPLACING = (
    "ON CONFLICT DO NOTHING leaves out rows whose key is there. To change them: UPDATE first, then "
    "INSERT … ON CONFLICT DO NOTHING, both in one transaction."
)
# What to do instead; by sqlglot's name.
_INSTEAD = {
    "alternative": INSTEAD_OF_REPLACING,
    "catalog": "There are no schemas: write the table's name alone.",
    "db": "There are no schemas: write the table's name alone.",
    "hints": "Leave them out.",
    "into": "CREATE TABLE with columns, then INSERT INTO … SELECT.",
    "limit": "Choose the rows in a subquery: WHERE key IN (SELECT key … LIMIT …).",
    "limit_options": "Write LIMIT with a number of rows.",
    "locks": "UPDATE the rows and see how many it found; a conflict is 40001, to be repeated.",
    "only": "There is no inheritance: leave ONLY out.",
    "order": "Choose the rows in a subquery: WHERE key IN (SELECT key … ORDER BY … LIMIT …).",
    "pivots": "Write one sum(…) FILTER (WHERE …) for each column.",
    "qualify": "Put the query into FROM and test the window function's column in WHERE.",
    "returning": "SELECT the rows by their key, in the same transaction.",
    "sample": "SELECT … WHERE random() < 0.1 takes about a tenth of the rows.",
    "with_": "Write the query as a subquery in WHERE or SET.",
}
# Words of sqlglot's that are no clause, even where the statement has such a word.
_NO_CLAUSES = frozenset(("expression", "expressions", "field", "kind", "method", "this"))

_KEYWORDS = (
    "BETWEEN", "DISTINCT", "FROM", "GROUP", "HAVING", "INNER", "INTO", "JOIN", "LEFT", "LIMIT",
    "OFFSET", "ORDER", "PRIMARY", "SET", "TABLE", "UNION", "VALUES", "WHERE",
)  # fmt: skip


def parse(scanned: Scanned, pluses: Collection[int] = ()) -> exp.Expr:
    """Return the tree of one statement; 42601 with position for what sqlglot cannot read.

    sqlglot forgets the sign +. So the tokens of those indices become the operator |/, which the
    grammar does not have: an exp.Sqrt that is no call.
    """
    parser = postgres().parser()
    for token, following in itertools.pairwise(scanned.tokens):
        # sqlglot keeps a name's comments at the call, also where it forgets the name and its place.
        is_call = following.token_type is TokenType.L_PAREN
        is_forgotten = is_call and token.text.upper() in parser.FUNCTION_PARSERS
        token.comments = [f"{token.start}"] if is_forgotten else []
    try:
        tokens = scanned.tokens_with_kind(TokenType.PIPE_SLASH, pluses)
        trees = parser.parse(tokens, scanned.text)
    except ParseError as error:
        raise _syntax_error(scanned, error) from error
    except RecursionError as error:
        raise too_deep() from error
    if len(trees) != 1 or trees[0] is None or isinstance(trees[0], exp.Command):
        raise ProgrammingError(
            f'syntax error in "{scanned.word(0)}"', sqlstate="42601", position=scanned.position(0)
        )
    return trees[0]


def too_deep() -> OperationalError:
    return OperationalError(
        "statement is nested too deep for the stack that is left", sqlstate="54001"
    )


def _syntax_error(scanned: Scanned, error: ParseError) -> ProgrammingError:
    details = error.errors[0] if error.errors else {}
    line, column = details.get("line"), details.get("col")
    place = next((t for t in scanned.tokens if (t.line, t.col) == (line, column)), None)
    near = f' at or near "{scanned.text[place.start : place.end + 1]}"' if place else ""
    description = str(details.get("description") or "")
    index = scanned.tokens.index(place) if place else 0
    if place and place.token_type is TokenType.R_PAREN:
        name = _called_before(scanned, index)
        is_missing = scanned.tokens[index - 1].token_type is TokenType.L_PAREN
        if name and (is_missing or description.startswith("The number of provided arguments")):
            return ProgrammingError(
                f"function {name}() does not exist for these arguments",
                sqlstate="42883",
                position=place.start + 1,
            )
    is_missing = description.startswith(("Required keyword", "Expect"))
    reason = "something is missing here" if is_missing else "unexpected text"
    return ProgrammingError(
        f"syntax error{near}: {reason}",
        sqlstate="42601",
        position=place.start + 1 if place else None,
        hint=_misspelled(scanned, place.start if place else len(scanned.text)),
    )


def _called_before(scanned: Scanned, index: int) -> str | None:
    """Return the name before the parenthesis that the index-th token closes."""
    depth = 0
    for place in range(index, 0, -1):
        kind = scanned.tokens[place].token_type
        depth += (kind is TokenType.R_PAREN) - (kind is TokenType.L_PAREN)
        if not depth:
            name = scanned.tokens[place - 1]
            is_name = name.text.isidentifier() and name.text.upper() not in _KEYWORDS
            return token_name(name) if is_name else None
    return None


def _misspelled(scanned: Scanned, end: int) -> str | None:
    """Return a hint when one of the last words before the error is nearly a keyword."""
    words = [token for token in scanned.tokens if token.start <= end]
    for token in reversed(words[-3:]):
        close = difflib.get_close_matches(token.text.upper(), _KEYWORDS, n=1, cutoff=0.75)
        if token.token_type is TokenType.VAR and close:
            return f'Did you mean {close[0]} instead of "{token.text}"?'
    return None


def start_of(node: exp.Expr, scanned: Scanned) -> int | None:
    """Return the 1-based character where the node begins, None when nothing in it knows."""
    starts: list[int] = []
    for part in node.walk():
        if isinstance(part, exp.Placeholder) and isinstance(part.this, str):
            starts.append(scanned.placeholder_starts[placeholder_index(part)])
        elif "start" in part.meta:
            starts.append(part.meta["start"])
    return min(starts) + 1 if starts else None


def called_name(node: exp.Expr, scanned: Scanned) -> str | None:
    """Return the name of the function that a node calls, as written, folded; None for no call.

    sqlglot has a class for many names (mod(a, b) is a % b), and names of its own for classes.
    """
    start = node.meta.get("start")
    if start is None and node.comments:  # see parse()
        start = int(node.comments[0])
    if start is None or isinstance(node, exp.Identifier):
        return None
    tokens = scanned.tokens
    index = bisect.bisect_left(tokens, start, key=lambda token: token.start)
    if index + 1 >= len(tokens) or tokens[index + 1].token_type is not TokenType.L_PAREN:
        return None
    return token_name(tokens[index])


def placeholder_index(node: exp.Placeholder) -> int:
    """Return the 0-based index in Scanned.placeholders."""
    return int(node.this[1:]) - 1


def require_only(node: exp.Expr, allowed: Iterable[str], scanned: Scanned, what: str) -> None:
    """Refuse (0A000) a node with a clause that would not be read: nothing is silently ignored."""
    for name, value in node.args.items():
        if value and name not in allowed:
            clause = "such arguments" if what.endswith("()") else _clause(name, scanned)
            raise NotSupportedError(
                f"{what} with {clause} is not supported",
                position=start_of(node, scanned),
                hint=_INSTEAD.get(name),
            )


def _clause(name: str, scanned: Scanned) -> str:
    """Return how a clause is written in the statement; sqlglot's name of it is never shown."""
    text = f" {' '.join(map(scanned.word, range(len(scanned.tokens))))} "
    if name in _CLAUSES:
        ways = _CLAUSES[name]
        return next((words for words in ways if f" {words} " in text), ways[0])
    words = name.strip("_").replace("_", " ").upper()
    is_written = f" {words} " in text and name not in _NO_CLAUSES
    return words if is_written else "such a clause"


def fold_name(identifier: exp.Expr) -> str:
    """Return an identifier's name as PostgreSQL does: in lower case unless quoted."""
    if isinstance(identifier, exp.Identifier) and identifier.args.get("quoted"):
        return identifier.name
    return folded(identifier.name)
