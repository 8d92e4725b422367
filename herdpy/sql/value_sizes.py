"""How many bytes a text or a bytea can have at the most, by what computes it.

Where that may be more than value_bytes_max, the printer puts a test before it (54000). What is made
of columns of tables, whose rows are short, mostly needs none.
"""

from collections.abc import Container

from herdpy.limits import parameter_bytes_max, row_bytes_max, value_bytes_max
from herdpy.model.types import Kind
from herdpy.sql import tree

_LOOKED_AT = 4  # levels of an expression
OTHER_KINDS_MAX = 400  # bytes of a number, a date or an interval as text
CHARACTER_MAX = 4  # bytes of UTF-8
JOINING = ("||", "concat", "concat_ws")
_SHORTENING = (
    "substring", "left", "right", "btrim", "ltrim", "rtrim", "reverse", "split_part", "decode",
)  # fmt: skip
CHOOSING = ("coalesce", "greatest", "least", "nullif")
SHORT = ("md5", "to_hex", "chr", "to_char")
GROWING = {"lower": 2, "upper": 2, "translate": CHARACTER_MAX, "encode": 2}
"""How many bytes one byte of the first argument can become."""


def bytes_max(node: tree.Expression, tables: Container[int], looked_at: int = _LOOKED_AT) -> int:
    """Return the greatest number of bytes of a value; `tables` are relations of tables' rows."""
    return min(grown_bytes_max(node, tables, looked_at), value_bytes_max)


def grown_bytes_max(
    node: tree.Expression, tables: Container[int], looked_at: int = _LOOKED_AT
) -> int:
    """Return what bytes_max() does, where the value were not refused above value_bytes_max."""
    if node.type.kind not in (Kind.TEXT, Kind.BYTEA):
        return OTHER_KINDS_MAX
    match node:
        case tree.Literal(value=str() | bytes() as value):
            return CHARACTER_MAX * len(value)
        case tree.Literal():
            return 0
        case tree.Parameter():
            return parameter_bytes_max
        case tree.ColumnRef(relation=relation):
            length = node.type.length or row_bytes_max
            return (
                min(CHARACTER_MAX * length, row_bytes_max)
                if relation in tables
                else (value_bytes_max)
            )
        case _ if not looked_at:
            return value_bytes_max
        case tree.Cast(operand=operand) | tree.Assign(operand=operand):
            factor = 1 if operand.type.kind is node.type.kind else 3  # '\x00'
            return factor * bytes_max(operand, tables, looked_at - 1)
        case tree.Let(body=body):
            return bytes_max(body, tables, looked_at - 1)
        case tree.Case(branches=branches, otherwise=otherwise):
            results = [result for _, result in branches]
            results += [] if otherwise is None else [otherwise]
            return max(bytes_max(result, tables, looked_at - 1) for result in results)
        case tree.Call():
            return _of_call(node, tables, looked_at - 1)
        case _:
            return value_bytes_max


def _of_call(call: tree.Call, tables: Container[int], looked_at: int) -> int:
    name = call.function
    if name in SHORT:
        return OTHER_KINDS_MAX
    if not (name in JOINING or name in CHOOSING or name in _SHORTENING or name in GROWING):
        return value_bytes_max
    if name in _SHORTENING or name in GROWING:
        return GROWING.get(name, 1) * bytes_max(call.arguments[0], tables, looked_at)
    sizes = [bytes_max(argument, tables, looked_at) for argument in call.arguments]
    if name in CHOOSING:
        return max(sizes)
    between = sizes[0] * max(len(sizes) - 3, 0) if name == "concat_ws" else 0
    return sum(sizes) + between
