"""Make the management API of a process from what the process has."""

from bookie.autorecovery.operations import ReplicationOperations
from bookie.config import AutoRecoveryConfig, BookieConfig
from bookie.lifecycle.operations import Operations
from bookie.management.access import HttpAccess
from bookie.management.api import ManagementApi
from bookie.management.bookie_endpoints import BookieEndpoints
from bookie.management.cluster import ClusterOperations
from bookie.management.cluster_endpoints import ClusterEndpoints
from bookie.management.long_tasks import LongTasks
from bookie.management.recovery_endpoints import RecoveryEndpoints
from bookie.server.node import BookieNode


def make_api(
    access: HttpAccess,
    cluster: ClusterOperations,
    config: BookieConfig | AutoRecoveryConfig,
    name: str,
    node: BookieNode | None = None,
) -> ManagementApi:
    """Return the API. config: what it shows as settings. name: of this process, in locks.

    node: the bookie of this process; None: it has none.
    """
    lifecycle = Operations(cluster.store, cluster.root, cluster.rng, cluster.clock)
    replication = ReplicationOperations(cluster.store, cluster.root, lifecycle)
    long_tasks = LongTasks(cluster.clock)
    endpoints = (
        *BookieEndpoints(node, config, cluster, long_tasks).table(),
        *ClusterEndpoints(cluster, lifecycle, replication).table(),
        *RecoveryEndpoints(cluster, lifecycle, replication, long_tasks, name).table(),
    )
    return ManagementApi(access, endpoints, long_tasks)
