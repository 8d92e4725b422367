"""The logs that porcupine (github.com/anishathalye/porcupine) is tested with, as operations.

Below test_data/ of it: jepsen/etcd_NNN.log, a register of etcd that was read, written and changed
by compare-and-set; kv/*.txt, texts by keys that were read, put and appended to.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.kill_cluster.linearizability import NEVER, Operation

LINEARIZABLE = frozenset(
    (2, 5, 7, 18, 25, 31, 38, 45, 48, 49, 51, 53, 56, 67, 75, 76, 80, 87, 92, 98, 100, 101, 102)
)
"""Of etcd's logs, as porcupine's own tests say; the others are not."""
COUNT = 103
MISSING = frozenset((95,))
"""etcd did not start in this one."""
KV = {
    f"c{clients}-{kind}": kind == "ok" for clients in ("01", "10", "50") for kind in ("ok", "bad")
}
"""By the name of the file, whether it is linearizable."""

_ETCD = re.compile(r"INFO\s+jepsen\.util\s+-\s+(\d+)\s+:(\w+)\s+:(\w+)\s+(.*?)\s*")
_KV = re.compile(r'{:process (\d+), :type :(\w+), :f :(\w+), :key "(.*)", :value (nil|"(.*)")}')


class _Line(NamedTuple):
    process: str
    kind: str
    """invoke, ok, fail; info: nothing is known of the answer."""
    function: str
    key: str
    value: str


def etcd_operations(lines: Iterable[str]) -> list[Operation]:
    """Return operations for etcd_step(); the time is the number of the line."""
    matches = map(_ETCD.fullmatch, (line.rstrip("\n") for line in lines))
    found = (_Line(m[1], m[2], m[3], "", m[4]) for m in matches if m is not None)
    return list(_paired(found))


def etcd_step(state: str, call: tuple[_Line, _Line | None]) -> str | None:
    """Return what the register has behind a call; "nil": nothing was written."""
    begun, ended = call
    is_unknown = ended is None or ended.value == ":timed-out"
    if begun.function == "read":
        return state if is_unknown or ended.value == state else None
    if begun.function == "write":
        return begun.value
    expected, new = begun.value.strip("[]").split()
    is_equal = state == expected
    if not is_unknown and (ended.kind == "ok") != is_equal:
        return None
    return new if is_equal else state


def kv_operations(lines: Iterable[str]) -> dict[str, list[Operation]]:
    """Return the operations of each key, for kv_step()."""
    matches = map(_KV.search, lines)
    found = (_Line(m[1], m[2], m[3], m[4], m[6] or "") for m in matches if m is not None)
    by_key: dict[str, list[Operation]] = {}
    for operation in _paired(found):
        by_key.setdefault(operation.call[0].key, []).append(operation)
    return by_key


def kv_step(state: str, call: tuple[_Line, _Line | None]) -> str | None:
    """Return what stands at the key behind a call."""
    begun, ended = call
    if begun.function == "get":
        return state if ended is None or ended.value == state else None
    return begun.value if begun.function == "put" else state + begun.value


def _paired(lines: Iterable[_Line]) -> Iterator[Operation]:
    """Yield operations whose call is (what was asked, what was answered or None)."""
    begun: dict[str, tuple[int, _Line]] = {}
    for number, line in enumerate(lines):
        if line.kind == "invoke":
            begun[line.process] = number, line
        elif line.kind != "info":
            begin, call = begun.pop(line.process)
            yield Operation(begin, number, (call, line))
    for begin, call in begun.values():
        yield Operation(begin, NEVER, (call, None))
