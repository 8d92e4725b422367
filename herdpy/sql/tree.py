"""The bound tree: SQL after names and types are known. Frozen; no node of syntax.py is in it.

Types on every expression are what the expression yields; implicit conversions are explicit Cast
nodes. Names of functions and operators are canonical and lower case (functions.py): "=", "<>",
"<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "and", "or", "not", "neg", "is_null",
"like", "ilike", "distinct" (IS DISTINCT FROM), and those of functions.py. "and" and "or" take two
or more arguments, the others as SQL says; "||" may have more than two, and a chain of "+", "-" and
"*" of one type is one call named after all of them ("+-*" of four operands), applied from the left;
integers of both kinds compare without a Cast. IN lists
keep their own shape; BETWEEN is bound as two comparisons, NULLIF as a CASE. No operand stands in
the tree twice, but for columns, constants, parameters and variables: what a rule needs several
times is bound by a Let, so that a tree is never larger than its text allows.
"""

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from operator import is_
from typing import Any, ClassVar, TypeVar

import msgspec

from herdpy.errors import InternalError
from herdpy.model.access import CREATE, DELETE, INSERT, UPDATE, USAGE
from herdpy.model.isolation import Isolation
from herdpy.model.schema import Check, Column, Index, Table, View
from herdpy.model.sequences import SequenceDefinition
from herdpy.model.types import Kind, Physical, SqlType


class Node(msgspec.Struct, frozen=True, cache_hash=True):
    """Base of all that a tree consists of. A node keeps its hash, so each is hashed once."""


NodeT = TypeVar("NodeT", bound=Node)

# --- expressions ---------------------------------------------------------------------------------


class Expression(Node, frozen=True):
    """Base of all; `type` is the type of the value."""

    type: SqlType


class Literal(Expression, frozen=True, eq=False):
    """A constant, physical, of `type`; None is NULL. INTERVAL: (months, days, microseconds).

    Two are equal if they are written alike: NaN is NaN, and -0.0 is not 0.0.
    """

    value: Physical | tuple[int, int, int]

    def _identity(self) -> object:
        value = self.value
        return (self.type, float.hex(value) if isinstance(value, float) else value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())


class Parameter(Expression, frozen=True):
    """The index-th parameter (0-based), converted to `type` by exec/coerce.py before execution."""

    index: int


class ColumnRef(Expression, frozen=True):
    """A column of a relation in scope (or of an outer query's): relation id and its output ordinal.

    For a TableRef the ordinal counts Table.columns; for a derived table its select list.
    """

    relation: int
    ordinal: int
    name: str


class Call(Expression, frozen=True):
    """A scalar function or operator; operands already have the types the signature asks for."""

    function: str
    arguments: tuple[Expression, ...]


class SequenceCall(Expression, frozen=True):
    """nextval, currval, lastval or setval of the sequence of a name.

    `sequence` is the one that the statement names, whose rights count; None: a column's own.
    """

    function: str
    name: str
    sequence: Table | None
    arguments: tuple[Expression, ...]


class Cast(Expression, frozen=True):
    """A conversion to `type`; implicit ones that the binder adds and explicit CASTs alike."""

    operand: Expression


class Assign(Cast, frozen=True):
    """The conversion of a value to the type of the column that it is stored in; outermost."""

    column: str


class Case(Expression, frozen=True):
    """Searched CASE; the simple form is bound to "=" tests."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None


class Variable(Expression, frozen=True):
    """The value that a Let around this has bound to the index."""

    index: int


class Let(Expression, frozen=True):
    """`body`, where a Variable stands for a value that is computed once, before the body.

    `bindings` are (index, value): values see no variable of this Let, and no column of another
    query does. Indexes are above those of every Let inside (let_index), so equal texts make equal
    trees. What a branch of the body needs is computed in that branch only.
    """

    bindings: tuple[tuple[int, Expression], ...]
    body: Expression


class InList(Expression, frozen=True):
    """operand [NOT] IN (items), items of the operand's type."""

    operand: Expression
    items: tuple[Expression, ...]
    is_negated: bool


class ScalarSubquery(Expression, frozen=True):
    """A query of one column and at most one row."""

    query: "Query"


class Exists(Expression, frozen=True):
    query: "Query"


class InQuery(Expression, frozen=True):
    """operand [NOT] IN (query)."""

    operand: Expression
    query: "Query"
    is_negated: bool


class RowInQuery(Expression, frozen=True):
    """(operands) IN (query), whose columns are as many and of the operands' types."""

    operands: tuple[Expression, ...]
    query: "Query"


class Quantified(Expression, frozen=True):
    """operand operator ANY (query), or ALL."""

    operand: Expression
    operator: str
    query: "Query"
    is_all: bool


class SortKey(Node, frozen=True):
    """One ORDER BY item; nulls_first is always decided (ASC: last, DESC: first, unless said)."""

    expression: Expression
    is_descending: bool
    nulls_first: bool


class Aggregate(Expression, frozen=True):
    """An aggregate call; count(*) has no arguments. `order` for string_agg and the like."""

    function: str
    arguments: tuple[Expression, ...]
    is_distinct: bool = False
    filter: Expression | None = None
    order: tuple[SortKey, ...] = ()


class Window(Expression, frozen=True):
    """A window call; `frame` is its normalised SQL text without expressions, or None."""

    function: str
    arguments: tuple[Expression, ...]
    partition: tuple[Expression, ...]
    order: tuple[SortKey, ...]
    frame: str | None
    filter: Expression | None = None
    is_distinct: bool = False


# --- relations -----------------------------------------------------------------------------------


class TableRef(Node, frozen=True):
    """One reference to a table; each reference has its own id."""

    id: int
    table: Table
    alias: str
    reader: Table | None = None
    """The view in whose query it stands, whose owner reads it; None: the session's user does."""


class Derived(Node, frozen=True):
    """A subquery or a function in FROM, or the query of a view.

    is_lateral: its query may name columns of the relations before it in the same FROM.
    """

    id: int
    query: "Query"
    alias: str
    view: Table | None = None
    reader: Table | None = None
    """Of a view, as of a table."""
    is_lateral: bool = False


class CteRef(Node, frozen=True):
    """A reference to a WITH item of this or an outer query, by the item's id."""

    id: int
    cte: int
    alias: str


class JoinKind(Enum):
    """The kinds of join; the value is SQL's word."""

    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    CROSS = "CROSS"


class Join(Node, frozen=True):
    """left JOIN right ON condition; USING and NATURAL are bound to ON."""

    kind: JoinKind
    left: "Relation"
    right: "Relation"
    condition: Expression | None


Relation = TableRef | Derived | CteRef | Join


def relation_ids(relation: Relation | None) -> set[int]:
    """Return the ids of the relations that are joined; not those inside of them."""
    if relation is None:
        return set()
    if isinstance(relation, Join):
        return relation_ids(relation.left) | relation_ids(relation.right)
    return {relation.id}


# --- queries -------------------------------------------------------------------------------------


class Output(Node, frozen=True):
    """One column of a select list: its name as shown, and its expression."""

    name: str
    expression: Expression


class Select(Node, frozen=True):
    """SELECT … FROM … WHERE … GROUP BY … HAVING; without FROM, `source` is None.

    `grouping_sets` are sets of keys, by their places in group_by; none: all of them together.
    """

    outputs: tuple[Output, ...]
    source: Relation | None
    where: Expression | None = None
    group_by: tuple[Expression, ...] = ()
    having: Expression | None = None
    is_distinct: bool = False
    distinct_on: tuple[Expression, ...] = ()
    grouping_sets: tuple[tuple[int, ...], ...] = ()

    @property
    def is_grouped(self) -> bool:
        """Whether there is a GROUP BY."""
        return bool(self.group_by or self.grouping_sets)


class Values(Node, frozen=True):
    """VALUES rows; all rows have the same types."""

    rows: tuple[tuple[Expression, ...], ...]
    names: tuple[str, ...]


class Series(Node, frozen=True):
    """The rows of generate_series(): one column of `start`'s type, and the number of each row.

    All three are of one type, but for `step`, an INTERVAL where the others are moments.
    """

    start: Expression
    stop: Expression
    step: Expression
    has_ordinality: bool


class SetOperation(Node, frozen=True):
    """left UNION | INTERSECT | EXCEPT [ALL] right; operands cast to common types."""

    operator: str
    is_all: bool
    left: "Query"
    right: "Query"


class Cte(Node, frozen=True):
    """One WITH item; ids are unique in the statement.

    is_recursive: its query is a UNION, of which the right side names the item itself.
    """

    id: int
    name: str
    query: "Query"
    is_recursive: bool = False


class Query(Node, frozen=True):
    """A body with its WITH, ORDER BY, LIMIT and OFFSET.

    `columns` are the result's (name, type). Sort keys over a Select are bound in that Select's
    scope (they may name columns it does not output), but for those that are computed outputs of
    it, which like all keys over a SetOperation or Values are ColumnRefs with relation OUTPUT; so
    are items of DISTINCT ON and GROUP BY: resolved() has what they stand for. limit and offset are
    BIGINT expressions without columns.
    """

    body: "Body"
    columns: tuple[tuple[str, SqlType], ...]
    ctes: tuple[Cte, ...] = ()
    order_by: tuple[SortKey, ...] = ()
    limit: Expression | None = None
    offset: Expression | None = None


Body = Select | SetOperation | Values | Series

OUTPUT = -1
"""Relation id of a ColumnRef that names an output column of the query itself."""


def output_ordinal(expression: Expression) -> int | None:
    """Return which output of its query a key is, None for one of its own."""
    if isinstance(expression, ColumnRef) and expression.relation == OUTPUT:
        return expression.ordinal
    return None


def resolved(keys: Sequence[Expression], outputs: Sequence[Output]) -> tuple[Expression, ...]:
    """Return keys with the expressions of the outputs that they name."""
    ordinals = map(output_ordinal, keys)
    return tuple(
        key if ordinal is None else outputs[ordinal].expression
        for key, ordinal in zip(keys, ordinals, strict=True)
    )


# --- statements ----------------------------------------------------------------------------------


Changed = tuple[TableRef | Table | None, int]
"""(what a statement changes, rights of model.access): a table, or None: the tablespace.

Of a TableRef the statement names columns, which takes SELECT, too.
"""


_CAPITAL = re.compile("(?<!^)(?=[A-Z])")


class Statement(Node, frozen=True):
    """Base of all. What is to be known of a kind elsewhere stands here, with the kind."""

    is_instant: ClassVar[bool] = False
    """It is about the session's own options or transaction, or KILLs: it takes no time."""
    is_audited: ClassVar[bool] = False
    """It changes tables, users or rights, or ends what others do."""
    frees_space: ClassVar[bool] = False
    """It may use what is kept for a full disk."""

    @property
    def verb(self) -> str:
        """The words that it begins with, as errors name it."""
        return _CAPITAL.sub(" ", type(self).__name__).upper()

    def changed(self) -> tuple[Changed, ...]:
        """Return what it changes, and the rights that takes; what it reads is found in its tree.

        A kind is refused until it says so.
        """
        raise InternalError(f"no rights are known for {type(self).__name__}")


class SelectStatement(Statement, frozen=True):
    """A query whose rows are the result."""

    query: Query

    def changed(self) -> tuple[Changed, ...]:
        return ()


class OnConflict(Enum):
    """What becomes of a new row whose key is there; the value is the word of syntax.Conflict."""

    FAIL = "FAIL"
    SKIP = "NOTHING"
    REPLACE = "REPLACE"
    UPDATE = "UPDATE"


class ConflictUpdate(Node, frozen=True):
    """DO UPDATE of the row that is there, which is the target's; the new one is `excluded`'s."""

    excluded: int
    assignments: tuple[tuple[int, Expression], ...]
    where: Expression | None


Returning = tuple[Output, ...] | None
"""What a change of rows gives of each: the new row, of DELETE the old one; None: nothing."""


class Insert(Statement, frozen=True):
    """INSERT or UPSERT. `source` yields one value per ordinal of `ordinals`, assignable to it.

    For VALUES `rows` holds the expressions and source is None; otherwise source is the query.
    Columns not named take their default. `update` is what on_conflict is UPDATE by. A row that is
    there in the way of a new one is what has its primary key, with is_by_key, or its values of one
    of the unique indexes `arbiters`, by their numbers in Table.stores.
    """

    target: TableRef
    ordinals: tuple[int, ...]
    rows: tuple[tuple[Expression, ...], ...] | None
    source: Query | None
    on_conflict: OnConflict = OnConflict.FAIL
    returning: Returning = None
    update: ConflictUpdate | None = None
    is_by_key: bool = True
    arbiters: tuple[int, ...] = ()
    sequences: tuple[Table, ...] = ()
    """Those of which columns take values by DEFAULT nextval()."""

    @property
    def table(self) -> Table:
        return self.target.table

    def changed(self) -> tuple[Changed, ...]:
        changes = self.on_conflict in (OnConflict.REPLACE, OnConflict.UPDATE)
        used: list[Changed] = [(sequence, USAGE) for sequence in self.sequences]
        return ((self.target, INSERT | (UPDATE if changes else 0)), *used)


class Update(Statement, frozen=True):
    """UPDATE of relation `target`; assignments are (ordinal, expression over the old row).

    `source` is what FROM joins to it: of the rows that a row of the target meets, one counts.
    """

    target: TableRef
    assignments: tuple[tuple[int, Expression], ...]
    where: Expression | None
    returning: Returning = None
    source: Relation | None = None

    def changed(self) -> tuple[Changed, ...]:
        return ((self.target, UPDATE),)


class Delete(Statement, frozen=True):
    """DELETE over relation `target`; `source` is what USING joins to it, as in Update."""

    frees_space = True
    target: TableRef
    where: Expression | None
    returning: Returning = None
    source: Relation | None = None

    def changed(self) -> tuple[Changed, ...]:
        return ((self.target, DELETE),)


class Definition(Statement, frozen=True):
    """Base of what changes tables or access; if it says no more, rights are checked as it runs."""

    is_audited = True

    def changed(self) -> tuple[Changed, ...]:
        return ()


class CreateTable(Definition, frozen=True):
    """CREATE TABLE; ids of table and columns are given out by the engine (0 here).

    So are those of its indexes, and the name of one where it is empty; and the names of
    `sequences`, each of the column with this ordinal.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    indexes: tuple[Index, ...]
    if_not_exists: bool
    checks: tuple[Check, ...] = ()
    sequences: tuple[tuple[int, SequenceDefinition], ...] = ()

    def changed(self) -> tuple[Changed, ...]:
        return ((None, CREATE),)


class CreateSequence(Definition, frozen=True):
    """CREATE SEQUENCE; owner: the table and column that it goes with."""

    name: str
    sequence: SequenceDefinition
    owner: tuple[str, str] | None
    if_not_exists: bool

    def changed(self) -> tuple[Changed, ...]:
        return ((None, CREATE),)


class AlterSequence(Definition, frozen=True):
    """ALTER SEQUENCE; `options` as sequence_options.Options.

    With restarts it goes on from `restart`, None: from START. changes_owner: to `owner`.
    """

    name: str
    kind: Kind | None
    options: tuple[tuple[str, int | bool | None], ...]
    restarts: bool
    restart: int | None
    changes_owner: bool
    owner: tuple[str, str] | None
    if_exists: bool


class CreateIndex(Definition, frozen=True):
    """CREATE INDEX of a table, which runs as a write; id and an empty name as in CreateTable."""

    table: Table
    index: Index
    if_not_exists: bool


class DropIndexes(Definition, frozen=True):
    """DROP INDEX of these names, each once."""

    frees_space = True
    names: tuple[str, ...]
    if_exists: bool

    @property
    def verb(self) -> str:
        return "DROP INDEX"


class AlterTable(Definition, frozen=True):
    """ALTER of a table or view (`kind`): as it was found, and as it is to be.

    Ids of new indexes are 0, and a name may be empty, as in CreateTable. With `rows` the table is
    made anew: what they give goes to the columns `ordinals`, what these leave out gets defaults.
    `sequences` are to be made, by the ordinals of the columns that they fill; as in CreateTable.
    None for both tables: there is none, and IF EXISTS. `lost` and `retyped` are ordinals of old
    columns; is_cascade: with the views that read what is lost. `tested` are the CHECKs that rows
    which are there have to fulfil.
    """

    kind: str
    table: Table | None = None
    made: Table | None = None
    rows: Query | None = None
    ordinals: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    retyped: tuple[int, ...] = ()
    is_cascade: bool = False
    tested: tuple[str, ...] = ()
    sequences: tuple[tuple[int, SequenceDefinition], ...] = ()

    @property
    def verb(self) -> str:
        return f"ALTER {self.kind}"


class RenameIndex(Definition, frozen=True):
    """ALTER INDEX name RENAME TO new_name."""

    name: str
    new_name: str
    if_exists: bool

    @property
    def verb(self) -> str:
        return "ALTER INDEX"


class CreateTableAs(Definition, frozen=True):
    """CREATE TABLE … AS: the table, whose columns the query's values have the types of.

    has_data False: WITH NO DATA, it stays empty.
    """

    table: CreateTable
    query: Query
    has_data: bool

    @property
    def verb(self) -> str:
        return "CREATE TABLE AS"

    def changed(self) -> tuple[Changed, ...]:
        return self.table.changed()


class CreateView(Definition, frozen=True):
    """CREATE [OR REPLACE] VIEW; `tables` are those that its text names, as they were found."""

    name: str
    columns: tuple[Column, ...]
    view: View
    tables: tuple[Table, ...]
    or_replace: bool

    def changed(self) -> tuple[Changed, ...]:
        return ((None, CREATE),)


class DropTables(Definition, frozen=True):
    """DROP of these names, of a kind as Table.kind; is_cascade: with the views that read them.

    Of a sequence: with the defaults that take its values.
    """

    frees_space = True
    names: tuple[str, ...]
    if_exists: bool
    is_cascade: bool
    kind: str = "table"

    @property
    def verb(self) -> str:
        return f"DROP {self.kind.upper()}"


class TruncateTables(Definition, frozen=True):
    """TRUNCATE of these tables, each once; restarts: their sequences begin anew."""

    frees_space = True
    tables: tuple[Table, ...]
    restarts: bool = False

    @property
    def verb(self) -> str:
        return "TRUNCATE TABLE"

    def changed(self) -> tuple[Changed, ...]:
        return tuple((table, DELETE) for table in self.tables)


class SessionStatement(Statement, frozen=True):
    """Base of what is about the session, or checks by itself who may do it."""

    is_instant = True

    def changed(self) -> tuple[Changed, ...]:
        return ()


class TransactionStatement(SessionStatement, frozen=True):
    """Base of what begins or ends a transaction, or a part of it: SessionCore.control()."""


class TransactionModes(Node, frozen=True):
    """[ISOLATION LEVEL …] [READ ONLY | READ WRITE]; None: it is not said."""

    isolation: Isolation | None = None
    is_read_only: bool | None = None


class Begin(TransactionStatement, frozen=True):
    """BEGIN [modes]; what they do not say is as the session has it."""

    modes: TransactionModes = TransactionModes()


class Commit(TransactionStatement, frozen=True):
    """COMMIT."""


class Rollback(TransactionStatement, frozen=True):
    """ROLLBACK."""


class SetTransaction(TransactionStatement, frozen=True):
    """SET TRANSACTION modes."""

    modes: TransactionModes


class MakeSavepoint(TransactionStatement, frozen=True):
    """SAVEPOINT name."""

    name: str


class RollbackTo(TransactionStatement, frozen=True):
    """ROLLBACK TO name."""

    name: str


class Release(TransactionStatement, frozen=True):
    """RELEASE name."""

    name: str


class SetOption(SessionStatement, frozen=True):
    """SET name = value; value None means DEFAULT."""

    name: str
    value: str | None


class SetConfig(SetOption, frozen=True):
    """SELECT set_config('name', 'value', false): SET which returns what SHOW would."""


class SetCharacteristics(SessionStatement, frozen=True):
    """SET SESSION CHARACTERISTICS AS TRANSACTION modes: those of the transactions to come."""

    modes: TransactionModes


class SetSnapshot(SessionStatement, frozen=True):
    """SET TRANSACTION SNAPSHOT 'lease'."""

    is_instant = False
    lease: str


class ShowOption(SessionStatement, frozen=True):
    """SHOW name, or SHOW TABLES with name "tables", or SHOW ALL with name "all"."""

    name: str


class Kill(SessionStatement, frozen=True):
    """KILL [CONNECTION] number, or KILL STATEMENT number."""

    is_audited = True
    number: int
    is_connection: bool


class TablespaceLimits(Node, frozen=True):
    """Limits of a tablespace that a statement names, as (name, value); None: no limit."""

    values: tuple[tuple[str, int | None], ...] = ()


class TablespaceStatement(SessionStatement, frozen=True):
    """Base of what makes, changes or removes tablespaces: no part of a transaction."""

    is_instant = False
    is_audited = True
    name: str


class CreateTablespace(TablespaceStatement, frozen=True):
    """CREATE TABLESPACE name [OWNER role] [WITH (limit = value, …)]; owner None: the user."""

    limits: TablespaceLimits
    owner: str | None
    if_not_exists: bool


class AlterTablespace(TablespaceStatement, frozen=True):
    """ALTER TABLESPACE name RENAME TO new_name, or SET or RESET (limit, …)."""

    new_name: str | None
    limits: TablespaceLimits


class DropTablespace(TablespaceStatement, frozen=True):
    """DROP TABLESPACE name [WITH (FORCE)]; is_forced: with its sessions."""

    frees_space = True
    if_exists: bool
    is_forced: bool


class RoleOptions(Node, frozen=True):
    """What CREATE and ALTER ROLE say of a role; None: nothing.

    The password is a TEXT; the literal NULL takes it away. valid_until_us is in microseconds since
    1970, FOREVER for 'infinity'.
    """

    can_login: bool | None = None
    is_superuser: bool | None = None
    can_create_roles: bool | None = None
    password: Literal | Parameter | None = None
    valid_until_us: int | None = None
    connections_max: int | None = None
    """-1: no maximum."""

    def __repr__(self) -> str:  # never shows a password
        return f"RoleOptions(can_login={self.can_login}, is_superuser={self.is_superuser}, …)"


FOREVER = -1


class AccessStatement(Definition, frozen=True):
    """Base of what changes roles and rights."""


class CreateRole(AccessStatement, frozen=True):
    """CREATE ROLE, or CREATE USER, which is a role that can log in."""

    name: str
    options: RoleOptions
    if_not_exists: bool


class AlterRole(AccessStatement, frozen=True):
    """ALTER ROLE or ALTER USER; name None: the session's own user."""

    name: str | None
    options: RoleOptions


class ChangeRoleSetting(AccessStatement, frozen=True):
    """ALTER ROLE … SET or RESET [MAXIMUM] setting; name None: the session's own user.

    A setting of None is ALL, a value of None takes away the default, or the maximum.
    """

    name: str | None
    setting: str | None
    value: int | None
    is_maximum: bool

    @property
    def verb(self) -> str:
        return "ALTER ROLE"


class DropRole(AccessStatement, frozen=True):
    """DROP ROLE or DROP USER."""

    names: tuple[str, ...]
    if_exists: bool


class GrantRights(AccessStatement, frozen=True):
    """GRANT or REVOKE of rights (bits of model.access; 0 is ALL) on tables or on a tablespace.

    is_of_sequences: ON SEQUENCE.

    Of tables and tablespace one is given. A grantee of None is the session's own user. has_option
    is WITH GRANT OPTION, with is_revoke GRANT OPTION FOR. is_cascade: with what was handed on.
    """

    rights: int
    tables: tuple[str, ...]
    tablespace: str | None
    grantees: tuple[str | None, ...]
    is_revoke: bool
    has_option: bool
    is_cascade: bool = False
    is_of_sequences: bool = False

    @property
    def verb(self) -> str:
        return "REVOKE" if self.is_revoke else "GRANT"


class GrantRoles(AccessStatement, frozen=True):
    """GRANT or REVOKE of membership; has_option is WITH ADMIN OPTION, or ADMIN OPTION FOR."""

    roles: tuple[str, ...]
    grantees: tuple[str | None, ...]
    is_revoke: bool
    has_option: bool

    @property
    def verb(self) -> str:
        return "REVOKE" if self.is_revoke else "GRANT"


class ChangeOwner(AccessStatement, frozen=True):
    """ALTER TABLE table OWNER TO role, or ALTER of another kind; None: the session's own user."""

    table: str
    owner: str | None
    kind: str = "table"

    @property
    def verb(self) -> str:
        return f"ALTER {self.kind.upper()}"


class Explain(Statement, frozen=True):
    statement: Statement
    is_analyze: bool

    @property
    def verb(self) -> str:
        return self.statement.verb

    def changed(self) -> tuple[Changed, ...]:
        return self.statement.changed()


# --- walking -------------------------------------------------------------------------------------


def is_arithmetic(function: str) -> bool:
    """Tell whether it is "+", "-" or "*", or a chain of them."""
    return not function.strip("+-*")


Subquery = ScalarSubquery | Exists | InQuery | RowInQuery | Quantified
"""What has a query in it."""
Atom = Literal | Parameter | ColumnRef | Variable
"""What costs nothing to be computed again, and may stand in a tree several times."""


def walk(
    node: object, stops: Container[object] | None = None, *, is_deep: bool = True
) -> Iterator[Expression]:
    """Yield the expressions in a node, each object once, those of subqueries when is_deep.

    With `stops` not into them nor into aggregates.
    """
    for part in nodes(node, stops, is_deep=is_deep):
        if isinstance(part, Expression):
            yield part


def nodes(
    node: object, stops: Container[object] | None = None, *, is_deep: bool = True
) -> Iterator[object]:
    """Yield all nodes in a node, each object once; otherwise as walk()."""
    seen: set[int] = set()
    pending = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending += node[::-1]  # pyright: ignore[reportUnknownArgumentType]
            continue
        names = _field_names(type(node))
        if not names or id(node) in seen or (isinstance(node, Query) and not is_deep):
            continue
        seen.add(id(node))
        yield node
        if stops is not None and (isinstance(node, Aggregate) or node in stops):
            continue
        pending += [getattr(node, name) for name in names]


def parts(node: Node) -> list[object]:
    """Return the values of a node's fields, the last first: nodes, tuples of them, and others."""
    return [getattr(node, name) for name in _field_names(type(node))]


class PartSearch:
    """Tells whether an expression, or one in it, is one that `is_wanted`, which must not change.

    It does not look into queries of subqueries, and looks at each part once: asked at each level of
    an expression, walk() would take the square of its depth. One thread.
    """

    def __init__(self, is_wanted: Callable[[Expression], bool]) -> None:
        self._is_wanted = is_wanted
        # By id, with the node, so that no other one gets its id: comparing nodes walks them.
        self._known: dict[int, tuple[Expression, bool]] = {}

    def __call__(self, node: Expression) -> bool:
        known = self._known.get(id(node))
        if known is None:
            known = self._known[id(node)] = node, self._is_wanted(node) or self._is_inside(node)
        return known[1]

    def _is_inside(self, node: Expression) -> bool:
        pending: list[object] = parts(node)
        while pending:
            part = pending.pop()
            if isinstance(part, tuple):
                pending += part[::-1]  # pyright: ignore[reportUnknownArgumentType]
            elif isinstance(part, Expression):
                if self(part):
                    return True
            elif isinstance(part, Node) and not isinstance(part, Query):
                pending += parts(part)
        return False


class OuterNames:
    """Finds which columns and WITH items of the queries around it a query names.

    It looks at each part once, as PartSearch does. One thread.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Query, frozenset[tuple[str, int]]]] = {}

    def of(self, query: Query) -> frozenset[tuple[str, int]]:
        """Return them as ("relation" or "cte", id)."""
        known = self._known.get(id(query))
        if known is not None:
            return known[1]
        own: set[tuple[str, int]] = {("relation", OUTPUT)}
        named: set[tuple[str, int]] = set()
        pending: list[object] = parts(query)
        while pending:
            part = pending.pop()
            if isinstance(part, tuple):
                pending += part  # pyright: ignore[reportUnknownArgumentType]
            elif isinstance(part, SetOperation):  # a long chain of them is as deep
                pending += parts(part.left) + parts(part.right)
            elif isinstance(part, Query):
                named |= self.of(part)
            elif isinstance(part, Node):
                if isinstance(part, (TableRef, Derived, CteRef)):
                    own.add(("relation", part.id))
                if isinstance(part, CteRef):
                    named.add(("cte", part.cte))
                elif isinstance(part, Cte):
                    own.add(("cte", part.id))
                elif isinstance(part, ColumnRef):
                    named.add(("relation", part.relation))
                pending += parts(part)
        found = frozenset(named - own)
        self._known[id(query)] = query, found
        return found


_NUMBERED: dict[type, tuple[tuple[str, str], ...]] = {
    TableRef: (("id", "relation"),),
    Derived: (("id", "relation"),),
    CteRef: (("id", "relation"), ("cte", "cte")),
    Cte: (("id", "cte"),),
    ColumnRef: (("relation", "relation"),),
}
"""By kind of node the fields that hold ids, and of what; `id` is where one is given out."""


def shape(node: Node) -> tuple[object, ...]:
    """Return what two nodes have alike that differ in nothing but the ids given out inside them.

    So it is of subqueries with one text, at two places of a query.
    """
    given: dict[tuple[str, int], int] = {}
    for part in nodes(node):
        for name, space in _NUMBERED.get(type(part), ()):
            if name == "id":
                given.setdefault((space, getattr(part, name)), OUTPUT - 1 - len(given))
    found: list[object] = []
    pending: list[object] = [node]
    while pending:
        part = pending.pop()
        names = () if isinstance(part, Literal) else _field_names(type(part))
        if isinstance(part, tuple):
            found.append(len(part))  # pyright: ignore[reportUnknownArgumentType]
            pending += part[::-1]  # pyright: ignore[reportUnknownArgumentType]
        elif names:
            found.append(type(part))
            spaces = dict(_NUMBERED.get(type(part), ()))
            for name in names:
                value = getattr(part, name)
                key = (spaces[name], value) if name in spaces else None
                pending.append(value if key is None else given.get(key, value))
        else:
            found.append(part)
    return tuple(found)


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    """Return the fields of a node, the last first; none for what is no node of the tree."""
    return kind.__struct_fields__[::-1] if issubclass(kind, Node) else ()


def with_columns(
    parts: tuple[NodeT, ...],
    places: Mapping[tuple[int, int], ColumnRef],
    look: Callable[[], object] = lambda: None,
) -> tuple[NodeT, ...]:
    """Return nodes with other columns for some, by relation and ordinal; in their queries, too.

    look() is called for each node.
    """
    made: dict[int, Node] = {}  # by id: what stands in several places stays one

    def changed(value: Any) -> Any:
        if isinstance(value, tuple):
            items: list[Any] = [changed(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
            return value if all(map(is_, items, value)) else tuple(items)
        if isinstance(value, ColumnRef):
            return places.get((value.relation, value.ordinal), value)
        if not isinstance(value, Node):
            return value
        if id(value) not in made:
            look()
            before = {name: getattr(value, name) for name in _field_names(type(value))}
            after = {name: changed(part) for name, part in before.items()}
            is_same = all(map(is_, after.values(), before.values()))
            made[id(value)] = value if is_same else msgspec.structs.replace(value, **after)
        return made[id(value)]

    return changed(parts) if places else parts


def let_index(parts: Sequence[Expression]) -> int:
    """Return the first index for the variables of a Let over these parts."""
    highest = 0
    pending: list[object] = list(parts)
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending += node  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(node, Let):  # its own are above all of those inside
            highest = max(highest, *(index for index, _ in node.bindings))
        elif not isinstance(node, Query):
            pending += [getattr(node, name) for name in _field_names(type(node))]
    return highest + 1
