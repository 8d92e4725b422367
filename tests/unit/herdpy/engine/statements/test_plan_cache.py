"""PlanCache: which entries go, and what is kept as the plan prepared last for a text."""

from typing import Any

from herdpy.engine.state.catalog import Catalog
from herdpy.engine.statements.plan_cache import PlanCache, PlanRoom, Prepared, plan_key, prepare

CATALOG = Catalog(0, [])


def put(cache: PlanCache, text: str, *parameters: Any) -> Prepared:
    prepared = prepare(text, CATALOG, parameters, lambda: None)
    cache.put(plan_key(text, parameters), prepared)
    return prepared


def test_the_latest_plan_of_a_text_outlives_an_older_one_for_other_parameters() -> None:
    cache = PlanCache(PlanRoom(2, 1_000))
    put(cache, "SELECT ?", 1)
    of_text = put(cache, "SELECT ?", "a")
    other = put(cache, "SELECT 1")
    assert cache.get(plan_key("SELECT ?", (1,))) is None
    assert cache.latest == {"SELECT ?": of_text, "SELECT 1": other}


def test_the_latest_plan_of_a_text_goes_with_its_entry() -> None:
    cache = PlanCache(PlanRoom(1, 1_000))
    put(cache, "SELECT ?", 1)
    other = put(cache, "SELECT 1")
    assert cache.latest == {"SELECT 1": other}
    assert len(cache) == 1
