"""A planted fault replaces a function that is there and takes what that takes."""

import pytest

from tests.crash.plants import PLANTS as CRASH
from tests.damage.plants import PLANTS as DAMAGE
from tests.fixtures.plants import Plant, planted
from tests.fuzz.cost.plants import PLANTS as COST
from tests.pg_oracle.plants import PLANTS as ORACLE
from tests.sim.ledger.plants import PLANTS as LEDGER
from tests.sim.recovery.plants import PLANTS as RECOVERY
from tests.sim.storage.plants import PLANTS as STORAGE


@pytest.mark.parametrize("plants", [COST, CRASH, DAMAGE, LEDGER, ORACLE, RECOVERY, STORAGE])
def test_every_plant_fits(plants: dict[str, Plant]) -> None:
    for name in plants:
        with planted(plants, name):
            pass


def test_a_plant_that_takes_other_arguments_is_told() -> None:
    class Owner:
        def work(self, one: int, *, two: int) -> None: ...

    for wrong in (lambda self, one: None, lambda self, one, *, three: None):
        plants = {"p": Plant(Owner, "work", lambda _, wrong=wrong: wrong)}
        told = pytest.raises(TypeError, match=r"plant 'p': .*Owner\.work takes other arguments")
        with told, planted(plants, "p"):
            pass
