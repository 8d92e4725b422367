"""The faults that the lives of a server have to find, each by a checker that it names."""

from tests.fixtures.plants import Plant

PLANTS: dict[str, Plant] = {}
