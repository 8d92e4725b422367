"""Tokens to the syntax tree, by PostgreSQL's grammar: SELECT, INSERT, UPDATE, DELETE and DDL.

The one reader of these statements. What it does not know is 42601 at the token where the statement
stops being one; what PostgreSQL or others know there and we do not have is 0A000 (refusals.py).
What it knows is bound, or refused while binding, by what stands behind. How it reads without
recursion: read_expression.py.
"""

from collections.abc import Callable, Sequence

from herdpy.errors import NotSupportedError, ProgrammingError
from herdpy.limits import columns_max, statement_depth_max
from herdpy.sql.reading import syntax
from herdpy.sql.reading.extent import too_deep_at
from herdpy.sql.reading.read_expression import QUERIES, Steps
from herdpy.sql.reading.read_sequence import SequenceReader
from herdpy.sql.reading.refusals import (
    ALTERATIONS,
    COLUMN_FEATURES,
    INSTEAD,
    INSTEAD_OF_REPLACING,
    INSTEAD_OF_UPDATING,
    TABLE_OPTIONS,
)
from herdpy.sql.reading.syntax import Node, Query
from herdpy.sql.reading.tokens import Scanned
from herdpy.sql.reading.words import words_of

# No names of columns without AS: these words go on with what stands before them.
_NO_LABELS = words_of(
    """ARRAY AS CHAR CHARACTER CREATE DAY EXCEPT FETCH FILTER FOR FROM GRANT GROUP HAVING HOUR
    INTERSECT INTO ISNULL LIMIT MINUTE MONTH NOTNULL OFFSET ON ORDER OVER OVERLAPS PRECISION
    RETURNING SECOND TO UNION VARYING WHERE WINDOW WITH WITHIN WITHOUT YEAR
    AND OR NOT IS IN LIKE ILIKE SIMILAR BETWEEN COLLATE AT OPERATOR"""
)
_SET_OPERATIONS = frozenset(("UNION", "INTERSECT", "EXCEPT"))
_TAILS = _SET_OPERATIONS | words_of("ORDER LIMIT OFFSET FETCH FOR")
_BEHIND_NO_LIST = _TAILS | words_of("FROM WHERE GROUP HAVING WINDOW )")
_JOINS = words_of("JOIN CROSS NATURAL INNER LEFT RIGHT FULL")


def read(scanned: Scanned, check_interrupt: Callable[[], object] = lambda: None) -> Node:
    """Return the tree of a statement: a Query, Insert, Update, Delete, CreateTable, … of syntax.

    42601 with position; 0A000 for what is known and not supported; 54001 for what is too big.
    """
    return Reader(scanned, check_interrupt).statement()


def read_condition(scanned: Scanned) -> Node:
    """Return the tree of a text that is an expression alone."""
    reader = Reader(scanned, lambda: None)
    node = reader.run(reader.expression())
    if reader.kinds[reader.index] != "end":
        raise reader.unexpected()
    return node


class Reader(SequenceReader):
    """Reads one statement; one thread."""

    def __init__(self, scanned: Scanned, check_interrupt: Callable[[], object]) -> None:
        super().__init__(scanned, check_interrupt)
        self.verb = self.words[0]
        self._join_depth = 0

    def statement(self) -> Node:
        node = self.run(self._statement())
        if self.kinds[self.index] != "end":
            raise self.unexpected_in(self.verb)
        return node

    # --- statements ------------------------------------------------------------------------------

    def _statement(self) -> Steps:
        with_ = yield from self._with()
        self.verb = word = self.words[self.index]
        if word in ("INSERT", "UPSERT"):
            return (yield from self._insert(with_))
        if word not in ("UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "TRUNCATE"):
            return (yield from self._query(with_))
        if with_ is not None:
            if word in ("UPDATE", "DELETE"):
                raise self.refused(f"{word} with WITH", INSTEAD["WITH"])
            raise self.unexpected()
        if word == "UPDATE":
            return (yield from self._update())
        if word == "DELETE":
            return (yield from self._delete())
        if word == "CREATE":
            if self.words[self.index + 1] in ("UNIQUE", "INDEX"):
                return self._create_index()
            if self.words[self.index + 1] == "SEQUENCE":
                return self.create_sequence()
            return (yield from self._create())
        if word == "ALTER":
            if self.words[self.index + 1] == "SEQUENCE":
                return self.alter_sequence()
            return (yield from self._alter())
        if word == "TRUNCATE":
            return self._truncate()
        return self._drop_index() if self.words[self.index + 1] == "INDEX" else self._drop()

    def _insert(self, with_: syntax.With | None) -> Steps:
        self.index += 1
        if self.words[self.index] == "OR":
            what = f"{self.verb} OR {self.words[self.index + 1]}"
            raise self.refused(what, INSTEAD_OF_REPLACING)
        self.expect("INTO")
        table = self.table_name()
        if self.accept("AS"):
            table.alias = self.name()
        columns = source = conflict = None
        if self.verb == "UPSERT":
            conflict = syntax.Conflict("REPLACE", [], table.start)
        following = self.words[self.index + 1]
        if self.words[self.index] == "(" and following not in QUERIES and following != "(":
            columns = self.placed_names()
        overriding = None
        if self.accept("OVERRIDING"):
            overriding = self.expect_any("SYSTEM", "USER")
            self.expect("VALUE")
        is_named = columns is not None or overriding is not None
        if is_named or not self.accept_all("DEFAULT", "VALUES"):
            self.allows_default = True
            source = yield self.whole_query()
        if self.words[self.index] == "ON":
            conflict = yield from self._conflict()
        returning = yield from self._returning()
        return syntax.Insert(with_, table, columns, source, conflict, returning, overriding)

    def _conflict(self) -> Steps:
        start = self.tokens[self.index].start
        if self.words[self.index + 1] == "DUPLICATE":
            raise self.refused("ON DUPLICATE KEY UPDATE", INSTEAD_OF_UPDATING)
        if self.verb == "UPSERT":
            raise self.refused("UPSERT with ON CONFLICT")
        self.expect_all("ON", "CONFLICT")
        columns = self.placed_names() if self.words[self.index] == "(" else []
        if self.words[self.index] in ("ON", "WHERE"):
            word = "ON CONSTRAINT" if self.words[self.index] == "ON" else "WHERE"
            raise self.refused(f"ON CONFLICT with {word}")
        self.expect("DO")
        if self.accept("NOTHING"):
            return syntax.Conflict("NOTHING", columns, start)
        self.expect("UPDATE")
        assignments = yield from self._assignments()
        where = yield from self._where()
        return syntax.Conflict("UPDATE", columns, start, assignments, where)

    def _update(self) -> Steps:
        self.expect("UPDATE")
        table = self._target()
        assignments = yield from self._assignments()
        sources = yield from self._sources("FROM")
        where = yield from self._where()
        returning = yield from self._returning()
        return syntax.Update(table, assignments, sources, where, returning)

    def _assignments(self) -> Steps:
        """Read SET, and the columns with their values."""
        self.expect("SET")
        self.allows_default = True
        assignments: list[tuple[str, int, Node]] = []
        while True:
            if self.words[self.index] == "(":
                raise self.refused("SET (…) = (…)", "Write SET column = expression, …")
            name, start = self.placed_name()
            self.expect("=")
            value = yield self.expression()
            assignments.append((name, start, value))
            if not self.accept(","):
                return assignments

    def _delete(self) -> Steps:
        self.expect_all("DELETE", "FROM")
        table = self._target()
        sources = yield from self._sources("USING")
        where = yield from self._where()
        returning = yield from self._returning()
        return syntax.Delete(table, sources, where, returning)

    def _target(self) -> syntax.TableName:
        table = self.table_name()
        if self.accept("AS") or (self.is_name() and self.words[self.index] != "SET"):
            table.alias = self.name()
        return table

    def _where(self) -> Steps:
        return (yield self.expression()) if self.accept("WHERE") else None

    def _returning(self) -> Steps:
        return (yield from self._outputs("a RETURNING list")) if self.accept("RETURNING") else None

    def _create(self) -> Steps:
        self.expect("CREATE")
        if self.words[self.index] in ("OR", "VIEW"):
            return (yield from self._create_view())
        self.expect("TABLE")
        if_not_exists = self.accept_all("IF", "NOT", "EXISTS")
        table = self.table_name()
        if self.words[self.index] == "AS" or self._has_names_before_as():
            return (yield from self._create_as(table, if_not_exists=if_not_exists))
        columns: list[syntax.ColumnDefinition] = []
        keys: list[list[tuple[str, int]]] = []
        uniques: list[syntax.Unique] = []
        checks: list[syntax.Check] = []
        self.expect("(")
        while self.words[self.index] != ")" or columns or keys:
            name = self.name() if self.accept("CONSTRAINT") else None
            start = self.tokens[self.index].start
            if self.accept_all("PRIMARY", "KEY"):
                keys.append(self.placed_names())
            elif self.accept("UNIQUE"):
                is_distinct = self._nulls_distinct()
                uniques.append(syntax.Unique(self.placed_names(), is_distinct, name, start))
            elif self.words[self.index] == "CHECK":
                checks.append((yield from self._check(name)))
            elif name is not None:
                self._refuse_feature()
                raise self.unexpected()
            else:
                self._refuse_feature()
                self._check_count(columns, "a table")
                columns.append((yield from self._column_definition(uniques, checks)))
            if not self.accept(","):
                break
        self.expect(")")
        word = self.words[self.index]
        if word in TABLE_OPTIONS:
            following = self.words[self.index + 1]
            is_clause = following in ("BY", "COMMIT", "ROWID")
            raise self.refused(f"CREATE TABLE … {word}{f' {following}' if is_clause else ''}")
        return syntax.CreateTable(table, columns, keys, uniques, checks, if_not_exists)

    def _check(self, name: str | None) -> Steps:
        """Read CHECK (condition) of a constraint of a name."""
        start = self.tokens[self.index].start
        self.expect_all("CHECK", "(")
        begin = self.tokens[self.index].start
        condition = yield self.expression()
        text = self.scanned.text[begin : self.tokens[self.index - 1].end]
        self.expect(")")
        if self.accept("NO"):  # there is no inheritance
            self.expect("INHERIT")
        return syntax.Check(condition, text, name, start)

    def _nulls_distinct(self) -> bool:
        """Read [NULLS [NOT] DISTINCT] of what is unique."""
        if not self.accept("NULLS"):
            return True
        is_distinct = not self.accept("NOT")
        self.expect("DISTINCT")
        return is_distinct

    def _create_index(self) -> Node:
        self.expect("CREATE")
        is_unique = self.accept("UNIQUE")
        self.expect("INDEX")
        if self.words[self.index] == "CONCURRENTLY":
            raise self.refused("CREATE INDEX CONCURRENTLY", INSTEAD["CONCURRENTLY"])
        if_not_exists = self.accept_all("IF", "NOT", "EXISTS")
        start = self.tokens[self.index].start
        name = None if self.words[self.index] == "ON" and not if_not_exists else self.name()
        self.expect("ON")
        self.accept("ONLY")
        table = self.table_name()
        if self.accept("USING") and not self.accept("BTREE"):
            raise self.refused("CREATE INDEX with an access method other than btree")
        self.expect("(")
        columns: list[tuple[str, int]] = []
        while True:
            if not self.is_name() or self.words[self.index + 1] in ("(", "."):
                raise self.refused("an index of expressions", INSTEAD["INDEX"])
            columns.append(self.placed_name())
            # An index is read in both directions.
            self.accept_any(("ASC", "DESC"))
            if self.accept("NULLS") and not self.accept_any(("FIRST", "LAST")):
                raise self.unexpected()
            if not self.accept(","):
                break
        if self.words[self.index] != ")":
            raise self.refused("an index of expressions", INSTEAD["INDEX"])
        self.expect(")")
        is_distinct = self._nulls_distinct()
        for word in ("INCLUDE", "WITH", "TABLESPACE", "WHERE"):
            if self.words[self.index] == word:
                raise self.refused(f"CREATE INDEX … {word}")
        return syntax.CreateIndex(
            name, start, table, columns, is_unique, is_distinct, if_not_exists
        )

    def _drop_index(self) -> Node:
        self.expect_all("DROP", "INDEX")
        self.accept("CONCURRENTLY")
        if_exists = self.accept_all("IF", "EXISTS")
        names = [self.relation_name()]
        while self.accept(","):
            names.append(self.relation_name())
        self.accept_any(("CASCADE", "RESTRICT"))  # nothing depends on an index
        return syntax.DropIndex(names, if_exists)

    def _has_names_before_as(self) -> bool:
        """Tell whether here stands (name, …) AS."""
        place = self.index + 1 if self.words[self.index] == "(" else len(self.scanned.tokens)
        while self.kinds[place] in ("name", "word"):
            if self.words[place + 1] == ")":
                return self.words[place + 2] == "AS"
            if self.words[place + 1] != ",":
                return False
            place += 2
        return False

    def _create_as(self, table: syntax.TableName, *, if_not_exists: bool) -> Steps:
        columns = self.placed_names() if self.words[self.index] == "(" else None
        self.expect("AS")
        query = yield self.whole_query()
        has_data = True
        if self.accept("WITH"):
            has_data = not self.accept("NO")
            self.expect("DATA")
        return syntax.CreateTableAs(table, columns, query, if_not_exists, has_data)

    def _create_view(self) -> Steps:
        or_replace = self.accept_all("OR", "REPLACE")
        self.expect("VIEW")
        name = self.table_name()
        columns = self.placed_names() if self.words[self.index] == "(" else None
        if self.words[self.index] == "WITH":
            raise self.refused("CREATE VIEW … WITH options")
        self.expect("AS")
        begin = self.tokens[self.index].start
        query = yield self.whole_query()
        text = self.scanned.text[begin : self.tokens[self.index - 1].end]
        if self.words[self.index] == "WITH":
            raise self.refused("CREATE VIEW with CHECK OPTION", INSTEAD["CHECK"])
        return syntax.CreateView(name, columns, query, text, or_replace)

    def _refuse_feature(self) -> None:
        """Refuse a constraint that we do not have; words that may be names only where they are."""
        word, following = self.words[self.index], self.words[self.index + 1]
        if word not in COLUMN_FEATURES or (word == "EXCLUDE" and following not in ("USING", "(")):
            return
        what = COLUMN_FEATURES[word]
        if word == "GENERATED":
            if following not in ("ALWAYS", "BY"):
                return
            what = "GENERATED ALWAYS AS"
        raise self.refused(what)

    def _column_definition(self, uniques: list[syntax.Unique], checks: list[syntax.Check]) -> Steps:
        """Read a column, and put what is unique or checked in it to the table's."""
        name, start = self.placed_name()
        if self.words[self.index] in (",", ")"):
            raise ProgrammingError(
                f'column "{name}" needs a type', sqlstate="42601", position=start + 1
            )
        type_name = self.type()
        definition = syntax.ColumnDefinition(name, start, type_name, False, 0, None)
        found: set[str] = set()
        while self.words[self.index] not in (",", ")", ""):
            constraint = self.name() if self.accept("CONSTRAINT") else None
            begin = self.index
            identity = self.identity()
            if identity is None:
                self._refuse_feature()
            if identity is not None:
                word, definition.identity = "DEFAULT", identity
                found.add("NOT NULL")
            elif self.accept_all("NOT", "NULL"):
                word, definition.is_not_null = "NOT NULL", True
            elif self.accept("NULL"):
                word = "NULL"
            elif self.accept_all("PRIMARY", "KEY"):
                word = "NOT NULL"
                definition.key_count += 1
            elif self.accept("UNIQUE"):
                word, is_distinct = "UNIQUE", self._nulls_distinct()
                uniques.append(syntax.Unique([(name, start)], is_distinct, constraint, start))
            elif self.words[self.index] == "CHECK":
                word = "CHECK"
                checks.append((yield from self._check(constraint)))
            elif self.accept("DEFAULT"):
                word = "DEFAULT"
                definition.default = yield self.expression(is_restricted=True)
            else:
                raise self.unexpected()
            is_twice = word == "DEFAULT" and word in found
            found.add(word)
            if is_twice or found >= {"NULL", "NOT NULL"}:
                self.index = begin
                raise self.unexpected()
        return definition

    # --- ALTER -----------------------------------------------------------------------------------

    def _alter(self) -> Steps:
        self.expect("ALTER")
        kind = self.expect_any("TABLE", "VIEW", "INDEX")
        if_exists = self.accept_all("IF", "EXISTS")
        if kind == "TABLE":
            self.accept("ONLY")
        table = self.table_name()
        if kind == "TABLE":
            self.accept("*")
        actions: list[syntax.Alteration] = []
        if self.words[self.index] == "RENAME":
            actions.append(self._rename(kind))
        elif kind != "TABLE":
            raise self._refused_change(kind)
        else:
            while True:
                actions.append((yield from self._action()))
                if not self.accept(","):
                    break
        return syntax.Alter(kind, table, if_exists, actions)

    def _rename(self, kind: str) -> syntax.Alteration:
        self.expect("RENAME")
        if self.accept("TO"):
            return syntax.RenameTo(*self.placed_name())
        if kind != "TABLE":
            raise self.refused(f"ALTER {kind} … RENAME of a part")
        is_constraint = self.accept("CONSTRAINT")
        if not is_constraint:
            self.accept("COLUMN")
        name, start = self.placed_name()
        self.expect("TO")
        return syntax.RenamePart(name, start, self.name(), is_constraint)

    def _action(self) -> Steps:
        word = self.words[self.index]
        if word == "ADD":
            self.index += 1
            return (yield from self._add())
        if word == "ALTER":
            self.index += 1
            self.accept("COLUMN")
            return (yield from self._alter_column(*self.placed_name()))
        if word == "VALIDATE":
            self.expect_all("VALIDATE", "CONSTRAINT")
            return syntax.ValidateConstraint(*self.placed_name())
        if word == "DROP":
            self.index += 1
            is_constraint = self.accept("CONSTRAINT")
            if not is_constraint:
                self.accept("COLUMN")
            if_exists = self.accept_all("IF", "EXISTS")
            name, start = self.placed_name()
            is_cascade = self.accept_any(("CASCADE", "RESTRICT")) == "CASCADE"
            return syntax.DropPart(name, start, is_constraint, if_exists, is_cascade)
        raise self._refused_change("TABLE")

    def _refused_change(self, kind: str) -> Exception:
        """Return the error of what stands where a change does."""
        word = self.words[self.index]
        if word in ALTERATIONS:
            return self.refused(f"ALTER {kind} … {word}")
        return self.unexpected()

    def _add(self) -> Steps:
        has_name = self.accept("CONSTRAINT")
        name = self.name() if has_name else None
        start = self.tokens[self.index].start
        if self.words[self.index] == "CHECK":
            check = yield from self._check(name)
            return syntax.AddConstraint(check, not self.accept_all("NOT", "VALID"))
        if self.accept("UNIQUE"):
            is_distinct = self._nulls_distinct()
            if self.words[self.index] == "USING":
                raise self.refused("ADD UNIQUE USING INDEX")
            unique = syntax.Unique(self.placed_names(), is_distinct, name, start)
            return syntax.AddConstraint(unique, True)
        if self.accept_all("PRIMARY", "KEY"):
            if self.words[self.index] == "USING":
                raise self.refused("ADD PRIMARY KEY USING INDEX")
            return syntax.AddConstraint(syntax.PrimaryKey(self.placed_names(), start), True)
        self._refuse_feature()
        if has_name:
            raise self.unexpected()
        self.accept("COLUMN")
        if_not_exists = self.accept_all("IF", "NOT", "EXISTS")
        uniques: list[syntax.Unique] = []
        checks: list[syntax.Check] = []
        column = yield from self._column_definition(uniques, checks)
        if column.key_count:
            raise self.refused("ALTER TABLE … ADD COLUMN … PRIMARY KEY", INSTEAD["PRIMARY"])
        return syntax.AddColumn(column, uniques, checks, if_not_exists)

    def _alter_column(self, name: str, start: int) -> Steps:
        if self.accept_all("SET", "DEFAULT"):
            default = yield self.expression()
            return syntax.AlterColumn(name, start, has_default=True, default=default)
        if self.accept_all("DROP", "DEFAULT"):
            return syntax.AlterColumn(name, start, has_default=True)
        if self.accept_all("SET", "NOT", "NULL"):
            return syntax.AlterColumn(name, start, is_not_null=True)
        if self.accept_all("DROP", "NOT", "NULL"):
            return syntax.AlterColumn(name, start, is_not_null=False)
        if self.accept_all("SET", "DATA", "TYPE") or self.accept("TYPE"):
            type_name = self.type()
            if self.words[self.index] == "COLLATE":
                raise self.refused("COLLATE")
            using = (yield self.expression()) if self.accept("USING") else None
            return syntax.AlterColumn(name, start, type=type_name, using=using)
        if self.accept("ADD"):
            identity = self.identity()
            if identity is None:
                raise self.refused("ALTER TABLE … ALTER … ADD of anything but an identity")
            return syntax.AddIdentity(name, start, identity)
        word, following = self.words[self.index], self.words[self.index + 1]
        if word in ("SET", "DROP", "RESET", "RESTART"):
            raise self.refused(f"ALTER TABLE … ALTER … {word} {following}".rstrip())
        raise self.unexpected()

    def _drop(self) -> Node:
        self.expect("DROP")
        kind = self.expect_any("TABLE", "VIEW", "SEQUENCE").lower()
        if_exists = self.accept_all("IF", "EXISTS")
        tables = [self.table_name()]
        while self.accept(","):
            tables.append(self.table_name())
        is_cascade = self.accept_any(("CASCADE", "RESTRICT")) == "CASCADE"
        return syntax.DropTables(tables, if_exists, is_cascade, kind)

    def _truncate(self) -> Node:
        # Neither inheritance nor foreign keys are there to take notice of.
        self.expect("TRUNCATE")
        self.accept("TABLE")
        tables: list[syntax.TableName] = []
        while True:
            self.accept("ONLY")
            tables.append(self.table_name())
            self.accept("*")
            if not self.accept(","):
                break
        word = self.accept_any(("RESTART", "CONTINUE"))
        if word:
            self.expect("IDENTITY")
        self.accept_any(("CASCADE", "RESTRICT"))
        return syntax.Truncate(tables, word == "RESTART")

    # --- queries ---------------------------------------------------------------------------------

    def whole_query(self) -> Steps:
        with_ = yield from self._with()
        return (yield from self._query(with_))

    def _query(self, with_: syntax.With | None = None) -> Steps:
        first = yield from self._simple_query()
        query: Query = yield from self.query_tail(first)
        query.with_ = with_
        return query

    def _with(self) -> Steps:
        if not self.accept("WITH"):
            return None
        is_recursive = self.accept("RECURSIVE")
        items: list[syntax.WithItem] = []
        while True:
            name, start = self.placed_name()
            columns = self._column_names()
            self.expect("AS")
            if self.accept("NOT"):
                self.expect("MATERIALIZED")
            else:
                self.accept("MATERIALIZED")
            self.expect("(")
            if self.words[self.index] in ("INSERT", "UPDATE", "DELETE"):
                raise NotSupportedError(
                    "WITH takes queries, not changes of rows",
                    position=self.tokens[self.index].start + 1,
                )
            query = yield self.whole_query()
            self.expect(")")
            if is_recursive and self.words[self.index] in ("SEARCH", "CYCLE"):
                raise self.refused(f"WITH RECURSIVE with {self.words[self.index]}")
            items.append(syntax.WithItem(name, columns, query, start))
            if not self.accept(","):
                return syntax.With(items, is_recursive)

    def query_tail(self, query: Query) -> Steps:
        """Read set operations, ORDER BY, LIMIT, OFFSET and FETCH behind a query."""
        if self.words[self.index] in _SET_OPERATIONS:
            query = yield from self._set_operations(query)
        if self.words[self.index] not in _TAILS:
            return query
        start, target = self.tokens[self.index].start, query
        while isinstance(target, syntax.Subquery):  # whose tail goes on behind its parentheses
            target = target.query
        order = yield from self._order_by()
        limit: Node | None = None
        offset: Node | None = None
        found: set[str] = set()
        while True:
            word = self.words[self.index]
            part = "LIMIT" if word == "FETCH" else word
            if word not in ("LIMIT", "OFFSET", "FETCH") or part in found:
                break
            found.add(part)
            self.index += 1
            if word == "FETCH":
                limit = yield from self._fetch()
            elif word == "OFFSET":
                offset = yield self.expression()
                self.accept_any(("ROW", "ROWS"))
            elif not self.accept("ALL"):
                limit = yield self.expression()
        for name, value in (("order", order), ("limit", limit), ("offset", offset)):
            if value and getattr(target, name):
                clause = "ORDER BY" if name == "order" else name.upper()
                message = f"multiple {clause} clauses are not allowed"
                raise ProgrammingError(message, sqlstate="42601", position=start + 1)
            if value:
                setattr(target, name, value)
        return query

    def _set_operations(self, query: Query) -> Steps:
        """Read UNION, EXCEPT, and INTERSECT, which binds stronger."""
        waiting: list[tuple[Query, str, bool]] = []
        while word := self.accept_any(_SET_OPERATIONS):
            while waiting and (word != "INTERSECT" or waiting[-1][1] == "INTERSECT"):
                left, operator, is_all = waiting.pop()
                query = syntax.SetOperation(operator, is_all, left, query)
            is_all = self.accept_any(("ALL", "DISTINCT")) == "ALL"
            waiting.append((query, word, is_all))
            self._spend()
            query = yield from self._simple_query()
        while waiting:
            left, operator, is_all = waiting.pop()
            query = syntax.SetOperation(operator, is_all, left, query)
        return query

    def _fetch(self) -> Steps:
        self.expect_any("FIRST", "NEXT")
        start = self.tokens[self.index].start
        count: Node = syntax.Number("1", start)
        if self.words[self.index] not in ("ROW", "ROWS"):
            count = yield self.expression(is_restricted=True)
        self.expect_any("ROW", "ROWS")
        if self.words[self.index] == "WITH":
            raise NotSupportedError(
                "FETCH takes FIRST n ROWS ONLY", position=self.tokens[self.index].start + 1
            )
        self.expect("ONLY")
        return count

    def _simple_query(self) -> Steps:
        if self.words[self.index] == "(":
            self.index += 1
            query = yield self.whole_query()
            self.expect(")")
            return syntax.Subquery(query)
        if self.accept("VALUES"):
            rows: list[list[Node]] = []
            while True:
                self.expect("(")
                rows.append((yield from self._list()))
                self.expect(")")
                if not self.accept(","):
                    return syntax.Values(rows)
        if self.accept("TABLE"):
            table = self.table_name()
            star = syntax.Output(syntax.Star(None, table.start), None)
            return syntax.Select([star], False, [], [table], None, [], None, [])
        return (yield from self._select())

    def _select(self) -> Steps:
        self.expect("SELECT")
        is_distinct = self.accept("DISTINCT")
        distinct_on: list[Node] = []
        if is_distinct:
            if self.accept("ON"):
                self.expect("(")
                distinct_on = yield from self._list()
                self.expect(")")
        else:
            self.accept("ALL")
        outputs: list[syntax.Output] = []
        is_behind = self.kinds[self.index] == "end" or self.words[self.index] in _BEHIND_NO_LIST
        if is_distinct or not is_behind:
            outputs = yield from self._outputs("a select list")
        sources = yield from self._sources("FROM")
        where = yield from self._where()
        group_by: list[Node] = []
        is_group_distinct = False
        if self.accept_all("GROUP", "BY"):
            is_group_distinct = self.accept_any(("ALL", "DISTINCT")) == "DISTINCT"
            group_by = yield from self._group_by()
        having = (yield self.expression()) if self.accept("HAVING") else None
        windows: list[tuple[str, syntax.Window]] = []
        while self.accept("," if windows else "WINDOW"):
            name = self.name()
            self.expect("AS")
            windows.append((name, (yield from self._window())))
        return syntax.Select(
            outputs, is_distinct, distinct_on, sources, where, group_by, having, windows,
            is_group_distinct,
        )  # fmt: skip

    def _group_by(self) -> Steps:
        items: list[Node] = []
        while True:
            start = self.tokens[self.index].start
            item = yield from self._group_item()
            if isinstance(item, syntax.GroupingSets):
                items.append(item)
            elif item:
                items += item
            else:
                items.append(syntax.GroupingSets("SETS", [item], start))
            if not self.accept(","):
                return items

    def _group_item(self) -> Steps:
        """Read keys, none of them for (), or what stands for several sets of keys."""
        start = self.tokens[self.index].start
        words = self.words[self.index : self.index + 3]
        kind = ""
        if words == ["GROUPING", "SETS", "("]:
            kind = "SETS"
        elif words[0] in ("ROLLUP", "CUBE") and words[1] == "(":
            kind = words[0]
        if not kind:
            if self.accept_all("(", ")"):
                return list[Node]()
            item = yield from self._item()
            while isinstance(item, syntax.Paren):
                item = item.operand
            return item.items if isinstance(item, syntax.Row) else [item]
        self.index += 3 if kind == "SETS" else 2
        found: list[list[Node] | syntax.GroupingSets] = []
        while True:
            inner = yield self._group_item()
            if kind != "SETS" and (isinstance(inner, syntax.GroupingSets) or not inner):
                raise self.unexpected()
            found.append(inner)
            if not self.accept(","):
                break
        self.expect(")")
        return syntax.GroupingSets(kind, found, start)

    def _check_count(self, items: Sequence[Node], what: str) -> None:
        """Refuse the item that begins here where there are as many as there may be (54011)."""
        if len(items) >= columns_max:
            raise ProgrammingError(
                f"more than {columns_max} columns in {what}",
                sqlstate="54011",
                position=self.tokens[self.index].start + 1,
            )

    def _outputs(self, what: str) -> Steps:
        """Read the items of a select list, or of what is like one."""
        outputs = [(yield from self._output())]
        while self.accept(","):
            self._check_count(outputs, what)
            outputs.append((yield from self._output()))
        return outputs

    def _output(self) -> Steps:
        """Read one item of a select list."""
        words, start = self.words, self.tokens[self.index].start
        if self.accept("*"):
            word, following, inner = words[self.index : self.index + 3]
            is_list = following == "(" and inner not in (*QUERIES, "(")
            if is_list and word in ("EXCEPT", "EXCLUDE"):
                raise self.refused(f"* with {word}")
            return syntax.Output(syntax.Star(None, start), None)
        if words[self.index + 1] == "." and words[self.index + 2] == "*":
            table = self.name()
            self.index += 2
            return syntax.Output(syntax.Star(table, start), None)
        node = yield from self._item()
        if self.accept("AS"):
            return syntax.Output(node, self.label())
        kind = self.kinds[self.index]
        if kind == "name" or (kind == "word" and words[self.index] not in _NO_LABELS):
            return syntax.Output(node, self.label())
        return syntax.Output(node, None)

    # --- FROM ------------------------------------------------------------------------------------

    def _sources(self, word: str) -> Steps:
        """Read the items behind a word between commas, none where it does not stand."""
        sources: list[syntax.FromItem] = []
        while self.accept("," if sources else word):
            sources.append((yield from self._joined()))
        return sources

    def _joined(self) -> Steps:
        item = yield from self._relation()
        return (yield from self._joins(item))

    def _joins(self, item: syntax.FromItem) -> Steps:
        while self.words[self.index] in _JOINS:
            item = yield from self._join(item)
        return item

    def _join(self, left: syntax.FromItem) -> Steps:
        self._spend()
        if self.accept_all("CROSS", "JOIN"):
            right = yield from self._relation()
            return syntax.Join("CROSS", left, right, None, None, False)
        is_natural = self.accept("NATURAL")
        kind = self.accept_any(("LEFT", "RIGHT", "FULL"))
        if kind:
            self.accept("OUTER")
        else:
            self.accept("INNER")
        self.expect("JOIN")
        right = yield from self._relation()
        if is_natural:
            return syntax.Join(kind or "INNER", left, right, None, None, True)
        if self.words[self.index] in _JOINS:  # a JOIN b JOIN c ON … ON …
            self._join_depth += 1
            if self._join_depth > statement_depth_max:
                raise too_deep_at(self.tokens[self.index].start)
            right = yield self._joins(right)
            self._join_depth -= 1
        if self.accept("ON"):
            condition = yield self.expression()
            return syntax.Join(kind or "INNER", left, right, condition, None, False)
        self.expect("USING")
        names = [name for name, _ in self.placed_names()]
        return syntax.Join(kind or "INNER", left, right, None, names, False)

    def _relation(self) -> Steps:
        is_lateral = self.accept("LATERAL")
        if self.words[self.index] == "(":
            item = yield self._parenthesized_relation()
            if isinstance(item, Query):
                alias, columns = self._alias()
                return syntax.Derived(item, alias or "", columns, is_lateral)
            if is_lateral:
                raise self.unexpected()
            if self.words[self.index] == "AS" or self.is_name():
                return self._named_join(item)
            return item
        if self.words[self.index : self.index + 2] == ["ROWS", "FROM"]:
            raise self.refused("ROWS FROM")
        has_only = not is_lateral and self.accept("ONLY")
        is_enclosed = has_only and self.accept("(")
        if not has_only and self._is_call():
            return (yield from self._function_item())
        if is_lateral:
            raise self.unexpected()
        table = self.table_name()
        if is_enclosed:
            self.expect(")")
        elif not has_only:
            self.accept("*")  # as ONLY without meaning: there is no inheritance
        table.alias, table.columns = self._alias()
        return table

    def _named_join(self, join: syntax.FromItem) -> Node:
        """Read the name of a join in parentheses, which hides those of its tables."""
        start = self.tokens[self.index].start
        alias, columns = self._alias()
        star = syntax.Output(syntax.Star(None, start), None)
        query = syntax.Select([star], False, [], [join], None, [], None, [])
        return syntax.Derived(query, alias or "", columns)

    def _is_call(self) -> bool:
        is_word = self.kinds[self.index] in ("word", "name")
        return is_word and self.words[self.index + 1] == "("

    def _function_item(self) -> Steps:
        token = self.tokens[self.index]
        call = yield self._called(token.word, token.start)
        if not isinstance(call, syntax.Call) or call.over is not None or call.filter is not None:
            message = "FROM takes a function's call alone"
            raise ProgrammingError(message, sqlstate="42601", position=token.start + 1)
        has_ordinality = self.accept_all("WITH", "ORDINALITY")
        alias, columns = self._alias()
        return syntax.FunctionItem(call, has_ordinality, alias, columns)

    def _parenthesized_relation(self) -> Steps:
        """Read (query) or (joined tables); what follows "((" decides only behind its end."""
        self.expect("(")
        if self.words[self.index] in QUERIES:
            item = yield self.whole_query()
        elif self.words[self.index] == "(":
            item = yield self._parenthesized_relation()
            if isinstance(item, Query):
                if self.words[self.index] in _TAILS:
                    item = yield from self.query_tail(syntax.Subquery(item))
                elif self.words[self.index] != ")":
                    alias, columns = self._alias()
                    item = yield from self._joins(syntax.Derived(item, alias or "", columns))
                else:
                    item = syntax.Subquery(item)
            else:
                item = yield from self._joins(item)
        else:
            item = yield from self._joined()
        if not isinstance(item, Query | syntax.Join):  # (t) is none
            raise self.unexpected()
        self.expect(")")
        return item

    def _alias(self) -> tuple[str | None, list[str]]:
        """Read [AS] name [(columns)]; None and nothing when there is none."""
        if not self.accept("AS"):
            if not self.is_name():
                return None, []
            word, following = self.words[self.index], self.words[self.index + 1]
            if word in ("PIVOT", "UNPIVOT") and following == "(":
                raise self.refused(f"a table name with {word}", INSTEAD["PIVOT"])
            if word in ("ASOF", "SEMI", "ANTI", "POSITIONAL") and following == "JOIN":
                raise self.refused(f"{word} JOIN")
        alias = self.name()
        return alias, self._column_names()

    def _column_names(self) -> list[str]:
        """Read (name, …) behind an alias, if it stands here."""
        return [name for name, _ in self.placed_names()] if self.words[self.index] == "(" else []
