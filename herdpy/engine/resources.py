"""Resources: what the tablespaces of one owner have together: of a directory, or of a node.

One budget of memory, one DuckDB and the places of its results, one room of plans, one housekeeper,
the threads that sync and that stop: so two hundred tablespaces are not two hundred of each. A
directory that is alone has its own. A node of a cluster has a directory for each copy, which is
opened and closed by itself: its Tenant is how it has a part of the node's, and gives it back.
"""

from collections.abc import Callable
from functools import partial
from itertools import count

from bookie.runtime.interfaces import Clock, Driver
from herdpy.config import Config
from herdpy.engine.housekeeper import Housekeeper
from herdpy.engine.state.memory import TablespaceMemory
from herdpy.engine.statements.aside import Aside
from herdpy.engine.statements.plan_cache import PlanRoom
from herdpy.engine.statements.refusals import Refusals
from herdpy.engine.statements.result_places import ResultPlaces
from herdpy.engine.statements.stopper import Stopper
from herdpy.engine.vector_engines import VectorEngines
from herdpy.errors import Error
from herdpy.log.syncer import SyncThreads
from herdpy.model.governor import Governor

_TENANT_SHARE = 0.75
"""Of the memory, each of several may have; one that is alone has all of it."""


class Resources:
    """Any thread may call; the owner closes it behind all that has a part of it."""

    def __init__(
        self,
        *,
        clock: Clock,
        driver: Driver,
        config: Config,
        where: str,
        title: str = "the database",
        temp_directory: str | None = None,
        is_threaded: bool = True,
        governor: Governor | None = None,
    ) -> None:
        """Take what it is made of; threads come when they are needed.

        `where` is the name of its account of memory, title what errors call it. temp_directory is
        where DuckDB may spill. With is_threaded False there are no threads. The governor is the
        process's; None: the owner is alone in it.
        """
        # Constant after __init__.
        self.memory = (governor or Governor()).open(where, config.memory_bytes_max, title)
        self.plan_room = PlanRoom(config.plan_cache_entries_max, config.plan_cache_bytes_max)
        self.results = ResultPlaces(clock, config.vector_results_max)
        self.session_ids = count(1)
        self.statement_ids = count(1)
        self.refusals = Refusals()
        """Of the DuckDB that is for all."""
        self._aside = Aside(driver, clock)
        self.vectors = VectorEngines(
            config, clock, temp_directory, self._aside, partial(self.refusals.add_query, None)
        )
        self.sync_threads = SyncThreads(driver) if is_threaded else None
        self._stopper = Stopper(driver, clock)
        self.watch = self._stopper.watch if is_threaded else None
        """Has a statement stopped where it cannot look; without threads cancel() alone does."""
        self.housekeeper = Housekeeper(driver)
        # Changed by the owner alone, one call at a time.
        self._tenants: dict[Tenant, None] = {}

    # --- of a node -------------------------------------------------------------------------------

    def carry(self, id: str, name: str) -> "Tenant":  # noqa: A002 - the tablespace's
        """Let a copy have a part of all this, as often as it is opened, until forget().

        id: of its tablespace, no other one's; name: how its memory is shown. By one thread.
        """
        tenant = Tenant(self, id, name)
        self._tenants[tenant] = None
        self._share()
        return tenant

    def forget(self, tenant: "Tenant") -> None:
        """Take note that the copy is closed, and is not opened any more. Repeatable."""
        self._tenants.pop(tenant, None)
        self._share()

    @property
    def tenant_share(self) -> float:
        """What part of the memory each copy may have."""
        return _TENANT_SHARE if len(self._tenants) > 1 else 1.0

    def _share(self) -> None:
        """Have all have what there is for each now; who holds more keeps it."""
        for tenant in self._tenants:
            tenant.take_share()

    # --- closing ---------------------------------------------------------------------------------

    def stopping_steps(self) -> list[Callable[[], object]]:
        """Return what ends the threads that work in what is open; all repeatable."""
        return [self.housekeeper.wake, self._stopper.close, self.housekeeper.close]

    def closing_steps(self) -> list[Callable[[], object]]:
        """Return what ends all, behind what is open; all repeatable."""
        threads = [] if self.sync_threads is None else [self.sync_threads.close]
        engines = [*self.vectors.closing_steps(), self._aside.close]
        return [*self.stopping_steps(), *threads, *engines, self.memory.close]


class Tenant:
    """What one copy of a node has of the node's: made by Resources.carry()."""

    def __init__(self, resources: Resources, id: str, name: str) -> None:  # noqa: A002 - as above
        self.resources = resources
        self.id = id
        self._name = name
        self._memory: TablespaceMemory | None = None

    def open_memory(self, config: Config) -> TablespaceMemory:
        """Return accounts with nothing in them, whatever became of those before."""
        if self._memory is not None:
            self._memory.close()
        share = self.resources.tenant_share
        self._memory = TablespaceMemory(self.resources.memory, self._name, config, share)
        self.take_share()  # it may have become another one meanwhile
        return self._memory

    def take_share(self) -> None:
        if self._memory is not None:
            self._memory.take_share(self.resources.tenant_share)

    def closing_steps(self, refusals: Refusals, error: Error) -> list[Callable[[], object]]:
        """Return what ends the results of a copy's queries, and its users' DuckDB; repeatable.

        refusals: those of its tablespace. Who reads a result on gets the error.
        """
        resources = self.resources
        return [
            partial(resources.results.end_all, refusals, error),
            partial(resources.vectors.close_of, self.id),
        ]
