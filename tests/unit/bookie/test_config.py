"""Settings of bookies and clients: each number has a range."""

import math
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest

from bookie.config import BookieConfig, ClientConfig
from bookie.errors import IncorrectParameterError

Config = type[ClientConfig] | type[BookieConfig]


def numbers() -> Iterator[tuple[Config, str, type]]:
    for config in (ClientConfig, BookieConfig):
        for name, hint in get_type_hints(config).items():
            kind: Any = next(iter(get_args(hint)), hint)  # the number of `number | None`
            if kind in (int, float):
                yield config, name, kind


@pytest.mark.parametrize(("config", "name", "kind"), list(numbers()))
def test_every_number_has_a_range(config: Config, name: str, kind: type) -> None:
    """A busy loop, or a bookie that takes nothing, is one typing error away from each."""
    for value in (-1, 1 << 60, *((math.nan, math.inf) if kind is float else ())):
        with pytest.raises(IncorrectParameterError, match=f"^{name}: expected "):
            config(**{name: value})


def test_the_defaults_are_in_range() -> None:
    ClientConfig()
    BookieConfig()
