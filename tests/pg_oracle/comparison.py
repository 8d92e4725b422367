"""Cases on both servers: what differs, taken apart to the smallest expressions that do."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from herdpy.limits import decimal_precision_max
from herdpy.model.types import Kind
from tests.pg_oracle import dml
from tests.pg_oracle.answers import Answer, Difference, is_same
from tests.pg_oracle.cases import (
    Case,
    Frame,
    World,
    create_tables,
    make_world,
    output_text,
)
from tests.pg_oracle.expressions import VALUE, Node, value_leaf
from tests.pg_oracle.rules import SUBQUERY
from tests.pg_oracle.servers import Herdpy, Postgres

_ROUNDS_MAX = 12
_BY_KEY = ("value", "argument", "changed", "window")
"""Frames whose first column is a row's key."""


class Comparison:
    """A session of each server with the same tables, and cases that are run on both."""

    def __init__(self, conninfo: str) -> None:
        self._theirs = Postgres(conninfo)
        self._ours = Herdpy()
        for kind, run in (("TEMP TABLE", self._theirs.run), ("TABLE", self._ours.run)):
            for text in (*create_tables(kind), dml.create_table(kind)):
                _must(run(text), text)
        self._world = make_world(-1)

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    def enter(self, number: int) -> World:
        """Fill the tables as the world of that number has them."""
        if self._world.number != number:
            self._world = make_world(number)
            for text in (*self._world.fill, *dml.fill(number)):
                _must(self._theirs.run(text), text)
                _must(self._ours.run(text), text)
        return self._world

    def examine(self, cases: Sequence[Case]) -> dict[int, list[Difference]]:
        """Return by seed what the cases of the present world differ in; [] for nothing."""
        found: dict[int, list[Difference]] = {case.seed: [] for case in cases}
        expressions: list[tuple[Case, Frame, Node]] = []
        for case in cases:
            if case.change is not None:
                found[case.seed] = self._examine_change(case)
            elif case.node is not None and case.frame is not None:
                expressions.append((case, case.frame, case.node))
        ordered = sorted(expressions, key=lambda item: item[1].name)
        for _, items in groupby(ordered, key=lambda item: item[1].name):
            for case, frame, node in self._suspects(list(items)):
                found[case.seed] = self.take_apart(frame, node, case.tail)
        return found

    def statements(self, case: Case) -> list[str]:
        """Return what herdpy is asked."""
        if case.change is not None:
            return [statement.ours for statement in case.change.statements]
        if case.frame is None or case.node is None:
            return []
        return [case.frame.statement([output_text(case.node, case.tail, [])])]

    def _suspects(
        self, items: Sequence[tuple[Case, Frame, Node]]
    ) -> Iterator[tuple[Case, Frame, Node]]:
        """Yield those that differ: first several in a statement, then each that may."""
        theirs = [self._of_theirs(frame, node, case.tail) for case, frame, node in items]
        frame = items[0][1]
        good = [place for place, answer in enumerate(theirs) if answer.sqlstate is None]
        batch = Answer("")
        if not frame.is_alone and good:
            nodes = [(items[place][2], items[place][0].tail) for place in good]
            batch = self._of_ours(frame, nodes)
        for place, (case, frame, node) in enumerate(items):
            if batch.sqlstate is None and place in good:
                ours = batch.columns(0, 1 + good.index(place))
            else:
                ours = self._of_ours(frame, [(node, case.tail)])
            is_right = is_same(ours, theirs[place])
            if is_right and frame.by_rows is not None and node.is_row:
                by_rows = self._of_ours(frame, [(node, case.tail)], by_rows=True)
                is_right = is_same(by_rows, theirs[place])
            if not is_right:
                yield case, frame, node

    def _of_theirs(self, frame: Frame, node: Node, tail: str) -> Answer:
        return self._theirs.run(frame.statement([output_text(node, tail, None)]))

    def _of_ours(
        self, frame: Frame, nodes: Sequence[tuple[Node, str]], *, by_rows: bool = False
    ) -> Answer:
        parameters: list[object] = []
        texts = [output_text(node, tail, parameters) for node, tail in nodes]
        return self._ours.run(frame.statement(texts, by_rows=by_rows), parameters)

    # --- the smallest ---

    def take_apart(self, frame: Frame, node: Node, tail: str) -> list[Difference]:
        """Return the smallest that differ; each is replaced by PostgreSQL's value then."""
        found: list[Difference] = []
        for _ in range(_ROUNDS_MAX):
            if self._differs(frame, node, tail) is None:
                break
            for part in node.walk():
                inner = frame if part is node else self._frame_of(frame, part)
                # The zeros of a DECIMAL and a DOUBLE's last digit are seen in what is made of them.
                difference = self._differs(inner, part, tail, is_exact=part is not node)
                if difference is None or (part.is_untyped and part is not node):
                    continue
                if part.label.startswith(VALUE):  # herdpy has no constant for PostgreSQL's value
                    node = node.replaced(part, value_leaf(part.kind, None))
                    break
                # What stands in a subquery is planned with it, at any depth.
                is_query = part.label.startswith(SUBQUERY)
                below = [*part.walk()][:-1] if is_query else part.parts
                alone = tuple(self._alone(frame, each, tail) for each in below)
                found.append(difference._replace(parts=alone))
                if part is node:
                    return found
                node = node.replaced(part, self._neutral(inner, difference))
                break
        else:
            left = self._differs(frame, node, tail)
            found += [] if left is None else [left]
        return found

    def _alone(self, frame: Frame, part: Node, tail: str) -> Answer:
        return self._of_theirs(self._frame_of(frame, part), part, tail)

    def _frame_of(self, frame: Frame, part: Node) -> Frame:
        """Return where a part of an expression can stand alone."""
        if frame.name == "predicate":
            return self._world.frames["argument"]
        is_whole = any("{tail}" in each.template for each in part.walk())
        if frame.name in ("aggregate", "window") and not is_whole:
            return self._world.frames["argument"]
        return frame

    def _differs(
        self, frame: Frame, node: Node, tail: str, *, is_exact: bool = False
    ) -> Difference | None:
        theirs = self._of_theirs(frame, node, tail)
        ways = (False, True) if frame.by_rows is not None and node.is_row else (False,)
        for by_rows in ways:
            ours = self._of_ours(frame, [(node, tail)], by_rows=by_rows)
            if not is_same(ours, theirs, is_exact=is_exact):
                text = frame.statement([output_text(node, tail, [])], by_rows=by_rows)
                return Difference(node.label, node, text, ours, theirs)
        return None

    def _neutral(self, frame: Frame, difference: Difference) -> Node:
        """Return what has PostgreSQL's values in herdpy's type, or NULL where that cannot be."""
        node, ours, theirs = difference.node, difference.ours, difference.theirs
        values = [row[-1] for row in theirs.rows]
        kind = (ours if ours.sqlstate is None else theirs).kinds[-1:] or (node.kind,)
        is_known = theirs.sqlstate is None and all(map(_fits, values))
        if not values or not is_known:
            return value_leaf(kind[0] or node.kind, None)
        made = [(row[0], value_leaf(kind[0] or node.kind, row[-1])) for row in theirs.rows]
        if len(set(values)) == 1 or frame.name not in _BY_KEY:
            return made[0][1]
        cases = " ".join(f"WHEN {key} THEN {leaf.template}" for key, leaf in made)
        return replace(made[0][1], template=f"CASE q.id {cases} END")

    # --- changes of rows ---

    def _examine_change(self, case: Case) -> list[Difference]:
        change = case.change
        if change is None:
            return []
        outcome = self._changed(change)
        if outcome is None:
            return []
        alone: list[Answer] = []
        for node in change.nodes:
            has_columns = any(part.label.startswith("column") for part in node.walk())
            for name in ("argument", "changed") if has_columns else ("constant",):
                frame = self._world.frames[name]
                found = self.take_apart(frame, node, "")
                if found:
                    return found
                alone.append(self._of_theirs(frame, node, ""))
        return [outcome._replace(parts=tuple(alone))]

    def _changed(self, change: dml.Change) -> Difference | None:
        """Run the statements in a transaction of both; afterwards the rows are what they were."""
        done: list[str] = []
        for run in (self._theirs.run, self._ours.run):
            _must(run("BEGIN"), "BEGIN")
        found: Difference | None = None
        for statement in change.statements:
            done.append(statement.ours)
            self._theirs.run("SAVEPOINT s")
            theirs = self._theirs.run(statement.theirs)
            if theirs.sqlstate is not None:
                self._theirs.run("ROLLBACK TO s")
            ours = self._ours.run(statement.ours, statement.parameters)
            ours, theirs = _by_key(ours), _by_key(theirs)  # RETURNING has no order
            if not is_same(ours, theirs):
                found = Difference(change.label, _no_node(change), "; ".join(done), ours, theirs)
                break
        word = "COMMIT" if change.is_kept else "ROLLBACK"
        found = found or self._shown_differently(change, done)
        for run in (self._theirs.run, self._ours.run):
            _must(run(word), word)
        found = found or self._shown_differently(change, [*done, word])
        if change.is_kept or found is not None:
            for text in dml.fill(self._world.number):
                _must(self._theirs.run(text), text)
                _must(self._ours.run(text), text)
        return found

    def _shown_differently(self, change: dml.Change, done: Sequence[str]) -> Difference | None:
        ours, theirs = self._ours.run(dml.SHOW), self._theirs.run(dml.SHOW)
        if is_same(ours, theirs):
            return None
        return Difference(
            change.label, _no_node(change), "; ".join((*done, dml.SHOW)), ours, theirs
        )

    # --- statements as they are ---

    def run_on_both(self, text: str) -> tuple[Answer, Answer]:
        """Return herdpy's and PostgreSQL's answers to a statement."""
        return self._ours.run(text), self._theirs.run(text)


def _by_key(answer: Answer) -> Answer:
    """Return the rows by their first column, which no two share."""
    return answer._replace(rows=tuple(sorted(answer.rows, key=lambda row: row[0] or "")))


def _no_node(change: dml.Change) -> Node:
    """Return what stands for the expression of a difference that is in none."""
    return Node(change.label, Kind.UNKNOWN, "")


def _fits(text: str | None) -> bool:
    """Tell whether herdpy has a constant for a value that PostgreSQL has shown."""
    return (
        text is None or len(text.strip("-0.")) <= decimal_precision_max or not text[-1:].isdigit()
    )


def _must(answer: Answer, text: str) -> None:
    if answer.sqlstate is not None:
        raise AssertionError(f"{answer} after {text}")
