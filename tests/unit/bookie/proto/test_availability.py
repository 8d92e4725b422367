"""The list of entries a bookie holds: bytes by hand, all patterns there and back, hostile bytes."""

from itertools import chain
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.errors import IncorrectParameterError, MalformedFrameError
from bookie.ledger.distribution import entries_of
from bookie.proto.availability import decode, encode


def group(first: int, last: int, size: int, period: int) -> bytes:
    return pack(">qqii", first, last, size, period)


def header(groups: int, version: int = 0) -> bytes:
    return pack(">ii", version, groups) + bytes(56)


GOLDEN = [
    ([], header(0)),
    ([5], header(1) + group(5, 5, 1, 0)),
    ([0, 1, 2, 3], header(1) + group(0, 0, 4, 0)),
    # Striped, E5 Qw3, the bookie at index 2: all of 0 to 2, then three of five.
    (list(entries_of(2, 0, 19, 5, 3)), header(1) + group(0, 15, 3, 5)),
    ([0, 2, 4, 6, 10, 11], header(2) + group(0, 6, 1, 2) + group(10, 10, 2, 0)),
    ([0, 1, 4, 5, 9, 10], header(2) + group(0, 4, 2, 4) + group(9, 9, 2, 0)),
    ([0, 2**40], header(2) + group(0, 0, 1, 0) + group(2**40, 2**40, 1, 0)),
    ([2**63 - 1], header(1) + group(2**63 - 1, 2**63 - 1, 1, 0)),
]


@pytest.mark.parametrize(("ids", "data"), GOLDEN)
def test_golden(ids: list[int], data: bytes) -> None:
    assert encode(ids).hex() == data.hex()
    held = decode(data)
    assert held.count == len(ids)
    assert list(chain.from_iterable(held.ranges())) == ids


def test_golden_bytes_in_full() -> None:
    assert encode([3, 4, 8, 9]).hex() == (
        "0000000000000001" + "00" * 56 + "000000000000000300000000000000080000000200000005"
    )


@given(st.sets(st.integers(0, 60)) | st.sets(st.integers(0, 2**63 - 1), max_size=30))
def test_round_trip(ids: set[int]) -> None:
    held = decode(memoryview(encode(sorted(ids))))
    assert held.count == len(ids)
    assert list(chain.from_iterable(held.ranges())) == sorted(ids)
    for entry_id in [*range(-1, 63), *(i + d for i in ids for d in (-1, 0, 1))]:
        assert (entry_id in held) == (entry_id in ids)
    near = range(63)
    assert list(held.lacking(near)) == [entry_id for entry_id in near if entry_id not in ids]


def test_what_is_lacking_of_very_many_is_found_without_going_through_them() -> None:
    held = decode(header(1) + group(0, 0, 2**31 - 1, 0))
    assert list(held.lacking(range(2**31 + 1))) == [2**31 - 1, 2**31]


@given(st.integers(0, 5), st.integers(0, 2), st.binary(max_size=80))
def test_random_bytes_raise_only_our_error(groups: int, version: int, data: bytes) -> None:
    for hostile in (data, header(groups, version) + data):
        try:
            held = decode(hostile)
        except MalformedFrameError:
            continue
        assert held.count >= 0
        assert [entry_id for entry_id in (-1, 2**63 - 1) if entry_id in held] in ([], [2**63 - 1])


groups_strategy = st.lists(
    st.tuples(*[st.integers(-2, 9) | st.integers(-(2**63), 2**63 - 1)] * 2,
              *[st.integers(-2, 9) | st.integers(-(2**31), 2**31 - 1)] * 2),
    max_size=3,
)  # fmt: skip


@given(groups_strategy)
def test_groups_of_a_liar_are_refused_or_mean_something(groups: list[tuple[int, ...]]) -> None:
    try:
        held = decode(header(len(groups)) + b"".join(group(*g) for g in groups))
    except MalformedFrameError:
        return
    previous = -1
    for run, _ in zip(held.ranges(), range(50), strict=False):
        assert run.start > previous
        assert run.start in held
        assert run[-1] in held
        previous = run[-1]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes; expected at least 64"),
        (header(1), "1 groups in 64 bytes"),
        (header(-1), "-1 groups"),
        (header(2**31 - 1) + bytes(100), "2147483647 groups"),
        (header(0, 1), "version 1; expected 0"),
        (header(1) + group(-1, -1, 1, 0), "first=-1"),
        (header(1) + group(0, 0, 0, 0), "size=0"),
        (header(1) + group(0, 4, 1, 3), "period=3"),
        (header(1) + group(4, 0, 1, 2), "last=0"),
        (header(1) + group(2**63 - 1, 2**63 - 1, 2, 0), "size=2"),
        (header(2) + group(0, 0, 4, 0) + group(3, 3, 1, 0), "behind entry 3"),
    ],
)
def test_damage_says_what_is_wrong(data: bytes, says: str) -> None:
    with pytest.raises(MalformedFrameError, match="list of entries") as caught:
        decode(data)
    assert says in str(caught.value)


@pytest.mark.parametrize("ids", [[1, 1], [2, 1], [-1], [2**63], [0, 1, 0]])
def test_ids_have_to_ascend(ids: list[int]) -> None:
    with pytest.raises(IncorrectParameterError):
        encode(ids)


def test_a_million_striped_entries_are_a_few_bytes() -> None:
    assert len(encode(entries_of(0, 1, 1_000_000, 5, 3))) <= 64 + 4 * 24
