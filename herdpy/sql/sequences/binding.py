"""Sequences: CREATE and ALTER SEQUENCE, columns that they fill, and nextval() and its like."""

from collections.abc import Callable

from herdpy.errors import no_table, not_a
from herdpy.limits import identifier_bytes_max
from herdpy.model.schema import Column, Filling, FillKind, Table
from herdpy.model.sequences import SequenceDefinition
from herdpy.model.types import BIGINT, BOOLEAN, INTEGER, SMALLINT, TEXT, Kind, SqlType
from herdpy.sql import tree
from herdpy.sql.bind_expression import bind_open, bind_type, convert
from herdpy.sql.reading import syntax
from herdpy.sql.reading.refusals import PUBLIC
from herdpy.sql.scope import Scope, StatementContext
from herdpy.sql.sequences.options import Options, new_sequence
from herdpy.sql.text import name_text

_SERIALS = {
    "SERIAL": INTEGER, "SERIAL4": INTEGER, "BIGSERIAL": BIGINT, "SERIAL8": BIGINT,
    "SMALLSERIAL": SMALLINT, "SERIAL2": SMALLINT,
}  # fmt: skip


def serial_type(node: syntax.TypeName) -> SqlType | None:
    """Return the type of a SERIAL column; None: it is none."""
    return None if node.numbers else _SERIALS.get(node.name)


def bind_filling(
    node: syntax.ColumnDefinition, kind: SqlType, scope: Scope
) -> tuple[Filling, SequenceDefinition] | None:
    """Return what fills an identity or SERIAL column, and its sequence, which has no name yet."""
    is_serial = serial_type(node.type) is not None
    identity, name = node.identity, node.name
    if is_serial and identity is not None:
        what = f'both default and identity specified for column "{name}"'
        raise scope.error("42601", what, node)
    if is_serial and node.default is not None:
        what = f'multiple default values specified for column "{name}"'
        raise scope.error("42601", what, node)
    if identity is None:
        return (Filling(FillKind.DEFAULT, ""), new_sequence(kind.kind, {})) if is_serial else None
    return bind_identity(identity, kind, scope)


def bind_identity(
    identity: syntax.Identity, kind: SqlType, scope: Scope
) -> tuple[Filling, SequenceDefinition]:
    """Return what fills an identity column, and its sequence; its name is "" unless given."""
    if not kind.is_integer:
        what = "identity column type must be smallint, integer, or bigint"
        raise scope.error("22023", what, identity)
    for word in ("RESTART", "OWNED"):
        if word in identity.options.found:
            what = f"an identity column has no option {word}"
            raise scope.error("42601", what, identity)
    found, values = _options(identity.options, scope)
    how = FillKind.ALWAYS if identity.is_always else FillKind.BY_DEFAULT
    name = identity.options.found.get("SEQUENCE")
    named = Filling(how, name if isinstance(name, str) else "")
    return named, new_sequence(found or kind.kind, values)


def bind_default_of_sequence(
    node: syntax.Node | None, kind: SqlType, name: str, scope: Scope
) -> Filling | None:
    """Return what fills a column by DEFAULT nextval('sequence'); None: it is another default."""
    if not isinstance(node, syntax.Call) or node.name != "nextval" or len(node.arguments) != 1:
        return None
    sequence = _sequence_of(node.arguments[0], node, scope)
    if not kind.is_integer:
        raise scope.error(
            "0A000", f'DEFAULT nextval() of column "{name}" needs an integer type, not {kind}', node
        )
    return Filling(FillKind.DEFAULT, sequence.name, is_owner=False)


def bind_create_sequence(
    node: syntax.CreateSequence, context: StatementContext
) -> tree.CreateSequence:
    scope = Scope(context, clause="CREATE SEQUENCE")
    if "RESTART" in node.options.found:
        raise context.error("42601", "invalid sequence option RESTART", node.options)
    kind, values = _options(node.options, scope)
    name = node.name.name
    if len(name.encode()) > identifier_bytes_max:
        message = f'name "{name}": expected 1 to {identifier_bytes_max} bytes'
        raise context.error("42622", message, node.name)
    sequence = new_sequence(kind or Kind.BIGINT, values)
    return tree.CreateSequence(name, sequence, _owner(node.options), node.if_not_exists)


def bind_alter_sequence(
    node: syntax.AlterSequence, context: StatementContext
) -> tree.AlterSequence:
    scope, found = Scope(context, clause="ALTER SEQUENCE"), node.options.found
    if not node.if_exists:
        sequence_named(node.name.name, node.name, scope)
    kind, values = _options(node.options, scope)
    restart = found.get("RESTART")
    return tree.AlterSequence(
        node.name.name,
        kind,
        tuple(values.items()),
        restarts="RESTART" in found,
        restart=restart if isinstance(restart, int) else None,
        changes_owner="OWNED" in found,
        owner=_owner(node.options),
        if_exists=node.if_exists,
    )


def _options(node: syntax.SequenceOptions, scope: Scope) -> tuple[Kind | None, Options]:
    """Return the type, if one is given, and the options that are values."""
    kind = None
    values: dict[str, int | bool | None] = {}
    for word, value in node.found.items():
        if isinstance(value, syntax.TypeName):
            found = bind_type(value, scope)
            if not found.is_integer:
                what = "sequence type must be smallint, integer, or bigint"
                raise scope.error("22023", what, value)
            kind = found.kind
        elif word not in ("OWNED", "RESTART") and not isinstance(value, tuple | str):
            values[word] = value
    return kind, values


def _owner(node: syntax.SequenceOptions) -> tuple[str, str] | None:
    found = node.found.get("OWNED")
    return found if isinstance(found, tuple) else None


# --- values --------------------------------------------------------------------------------------


def bind_next(column: Column) -> tree.SequenceCall:
    """Return the next value of what fills a column, which takes no right on the sequence."""
    assert column.filling is not None
    return tree.SequenceCall(BIGINT, "nextval", column.filling.sequence, None, ())


def bind_nextval(node: syntax.Call, scope: Scope) -> tree.Expression:
    """Bind nextval and currval."""
    sequence = _sequence_of(node.arguments[0], node, scope)
    return tree.SequenceCall(BIGINT, node.name, sequence.name, sequence, ())


def bind_lastval(node: syntax.Call, _scope: Scope) -> tree.Expression:
    return tree.SequenceCall(BIGINT, node.name, "", None, ())


def bind_setval(node: syntax.Call, scope: Scope) -> tree.Expression:
    sequence = _sequence_of(node.arguments[0], node, scope)
    values = [
        convert(bind_open(argument, scope), kind, argument, scope)
        for argument, kind in zip(node.arguments[1:], (BIGINT, BOOLEAN), strict=False)
    ]
    return tree.SequenceCall(BIGINT, node.name, sequence.name, sequence, tuple(values))


def bind_serial_sequence(node: syntax.Call, scope: Scope) -> tree.Expression:
    """Bind pg_get_serial_sequence('table', 'column'): the name of the sequence, NULL for none."""
    names = [_constant(argument, node, scope) for argument in node.arguments]
    name, context = _folded(names[0]), scope.context
    table = context.catalog.table(name)
    if table is None:
        raise no_table(name, context.catalog.table_names(), context.position(node))
    ordinal = table.ordinal(names[1])
    if ordinal is None:
        what = f'column "{names[1]}" of table "{table.name}" does not exist'
        raise scope.error("42703", what, node)
    filling = table.columns[ordinal].filling
    is_owner = filling is not None and filling.is_owner
    return tree.Literal(TEXT, name_text(filling.sequence) if filling and is_owner else None)


def _sequence_of(argument: syntax.Node, node: syntax.Call, scope: Scope) -> Table:
    """Return the sequence that a call names."""
    return sequence_named(_folded(_constant(argument, node, scope)), node, scope)


def sequence_named(name: str, node: syntax.Node, scope: Scope) -> Table:
    """Return the sequence of a name; 42P01, 42809."""
    context = scope.context
    found = context.catalog.table(name)
    if found is None:
        known = context.catalog.table_names()
        raise no_table(name, known, context.position(node), kind="sequence")
    if found.sequence is None:
        raise not_a("sequence", name, context.position(node))
    return found


def _constant(argument: syntax.Node, node: syntax.Call, scope: Scope) -> str:
    """Return the constant text that an argument is, perhaps cast to regclass."""
    if isinstance(argument, syntax.Cast) and argument.type.name in ("REGCLASS", "TEXT"):
        argument = argument.operand
    if isinstance(argument, syntax.String):
        return argument.text
    bound = bind_open(argument, scope) if isinstance(argument, syntax.Call) else None
    if isinstance(bound, tree.Literal) and isinstance(bound.value, str):
        return bound.value
    raise scope.error(
        "0A000", f"{node.name}() of a name that is no constant", node, "Write the name in quotes."
    )


def _folded(name: str) -> str:
    """Return a name in a text as SQL reads it: in lower case unless quoted; without `public.`."""
    schema, dot, rest = name.partition(".")
    if dot and schema.lower() == PUBLIC:
        name = rest
    if len(name) > 1 and name[0] == name[-1] == '"':
        return name[1:-1].replace('""', '"')
    return name.lower()


BINDERS: dict[str, tuple[range, Callable[[syntax.Call, Scope], tree.Expression]]] = {
    **dict.fromkeys(("nextval", "currval"), (range(1, 2), bind_nextval)),
    "lastval": (range(1), bind_lastval),
    "setval": (range(2, 4), bind_setval),
    "pg_get_serial_sequence": (range(2, 3), bind_serial_sequence),
}
"""By name: how many arguments there may be, and what binds the call."""
