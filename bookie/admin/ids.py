"""How commands take ids of bookies and ledgers: checked before anything is asked or written."""

from collections.abc import Sequence
from typing import Any, TypeVar

import click

from bookie.errors import IncorrectParameterError
from bookie.ledger.types import BookieId, parse_bookie_id

T = TypeVar("T")


class _BookieIdType(click.ParamType):
    name = "bookie"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> BookieId:
        try:
            return parse_bookie_id(value)
        except IncorrectParameterError as error:
            self.fail(str(error), param, ctx)


class _LedgerIdType(click.ParamType):
    name = "ledger"
    _range = click.IntRange(0, 2**63 - 1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return self._range.convert(value, param, ctx)


BOOKIE_ID = _BookieIdType()
LEDGER_ID = _LedgerIdType()


def distinct(ctx: click.Context, param: click.Parameter, values: Sequence[T]) -> Sequence[T]:
    """Return the values of a parameter; BadParameter where one is there twice."""
    seen: set[T] = set()
    for value in values:
        if value in seen:
            raise click.BadParameter(f"{value} is there twice", ctx, param)
        seen.add(value)
    return values
