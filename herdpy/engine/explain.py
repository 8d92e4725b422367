"""EXPLAIN [ANALYZE]: the plan as rows of text."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from herdpy.engine.prepared import Prepared
from herdpy.engine.result import Result
from herdpy.model.types import TEXT, Physical
from herdpy.sql.plan import ExplainPlan

if TYPE_CHECKING:
    from herdpy.engine.session import Session


def explain(
    session: "Session", prepared: Prepared, plan: ExplainPlan, values: Sequence[Physical]
) -> Result:
    """Return the lines of the plan, one row each."""
    lines = [repr(plan.plan)]
    return Result((("plan", TEXT),), iter([(line,) for line in lines]), row_count=len(lines))
