"""Keys as Arrow columns: sorted, and compared with their neighbours, many at a time. Any thread."""

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa

from herdpy.model.schema import Table
from herdpy.model.types import Kind
from herdpy.storage.arrow import INTEGERS, Array, pc
from herdpy.storage.arrow_staged import viewed
from herdpy.storage.column import layout_of

_SIGN_LESS = pa.scalar(2**63 - 1, pa.int64())


def comparable(table: Table, columns: Sequence[Array]) -> list[Array]:
    """Return the columns of keys, none of them NULL, as arrays that order as keys do."""
    return [
        _comparable(array, table, ordinal)
        for array, ordinal in zip(columns, table.key, strict=True)
    ]


def _comparable(array: Array, table: Table, ordinal: int) -> Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    sql_type = table.columns[ordinal].type
    number = INTEGERS.get(layout_of(sql_type))
    if number is not None:
        return viewed(array, number)
    if sql_type.is_float:  # as float_order() does
        array = array.cast(pa.float64())
        bits = viewed(pc.add(array, 0.0), pa.int64())
        order = pc.if_else(pc.less(bits, 0), pc.bit_wise_xor(bits, _SIGN_LESS), bits)
        return pc.if_else(pc.is_nan(array), _SIGN_LESS, order)
    return array.cast(pa.int8()) if sql_type.kind is Kind.BOOLEAN else array


def sorted_order(keys: Sequence[Array]) -> Array | None:
    """Return the indices that sort keys, equal ones in their order; None: they ascend strictly."""
    if len(keys[0]) < 2:
        return None
    if (
        len(keys) == 1
        and pc.all(pc.less(keys[0].slice(0, len(keys[0]) - 1), keys[0].slice(1))).as_py()
        is not False
    ):
        return None
    names = [str(place) for place in range(len(keys))]
    table = pa.table(list(keys), names=names)
    return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])


def repeats(keys: Sequence[Array]) -> Array | None:
    """Return of sorted keys which are equal to the one before; None: none is."""
    count = len(keys[0])
    if count < 2:
        return None
    same = reduce(pc.and_, [pc.equal(key.slice(0, count - 1), key.slice(1)) for key in keys])
    if not pc.any(same).as_py():
        return None
    return pa.concat_arrays([pa.array([False]), same])
