"""NodeSilences: which connections a node that stands still is left by."""

from herdpy.driver.dsn import Address
from herdpy.driver.interfaces import Found
from herdpy.driver.remote.silences import NodeSilences

A, B = Address("a", 7000), Address("b", 7000)


def test_connections_made_before_a_silence_are_told_and_later_ones_are_not() -> None:
    silences = NodeSilences()
    assert not silences.has(Found(A, 0))
    silences.note(Found(A, 5))
    silences.note(Found(A, 3))  # an older one has found it out, too
    told = [silences.has(Found(A, number)) for number in (3, 5, 6)]
    assert told == [True, True, False]
    assert not silences.has(Found(B, 0))


def test_a_bounded_number_of_nodes_is_remembered() -> None:
    silences = NodeSilences()
    nodes = [Address("a", port) for port in range(1, 66)]
    for address in nodes:
        silences.note(Found(address, 1))
    assert [silences.has(Found(address, 1)) for address in nodes] == [False, *[True] * 64]
