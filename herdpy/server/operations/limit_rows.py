"""What a server adds to syslimits and syswaits: its own limits, its users', and waits for workers.

The numbers are the loop's; rows are made of them by any thread.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from herdpy.engine.limit_rows import CONNECTIONS_MAX, LimitRow, WaitRow, role_maxima
from herdpy.model.role_settings import CONNECTIONS, OPEN_RESULTS, RUNNING_STATEMENTS, TIMEOUTS
from herdpy.server.user_shares import WORKERS_OF_TABLESPACE

if TYPE_CHECKING:
    from herdpy.server.hub import Hub
    from herdpy.server.served import Served

_MS_PER_S = 1_000


def server_limits(hub: "Hub", served: "Served") -> Iterator[LimitRow]:
    """Yield the limits of the server, then those of the roles of one tablespace."""
    config, refused, workers, shares = hub.config, hub.metrics.refused, hub.workers, served.shares
    used = {
        "connections_max": hub.entered_count,
        "waiting_max": workers.waiting_count,
        "response_bytes_max": hub.stalled.byte_count,
    }
    for name, count in used.items():
        yield LimitRow(name, "", getattr(config, name), count, refused.get(name, 0))
    for name, budget in (
        ("request_bytes_max", hub.received),
        ("parameter_bytes_max", hub.parameters),
        ("results_max", hub.results),
    ):
        yield LimitRow(name, "", budget.maximum, budget.used, budget.refused)
    results, refusals = served.results, served.database.refusals
    yield from tablespace_limits(served)
    yield from _user_limits(served)
    yield from peer_limits(hub)
    running = workers.usual_count - workers.waiting_count
    yield LimitRow("workers", "", config.workers, running, 0, workers.pool.waits)
    yield LimitRow(
        "grpc_requests_per_s", "", config.grpc_requests_per_s, 0, 0, hub.common.pace.waits
    )
    for setting, field in TIMEOUTS.items():
        yield LimitRow(setting, "", int(getattr(config, field) * _MS_PER_S), 0)
    for lines in hub.lines:
        name, share = f"{lines.name}_waiting_bytes", lines.bytes_max
        yield LimitRow(name, "", share, lines.waiting_bytes, lines.lost_count)
    by_user = {
        CONNECTIONS: shares.connections,
        RUNNING_STATEMENTS: shares.running,
        OPEN_RESULTS: results.by_user,
    }
    for user, setting, maximum in role_maxima(served.database, by_user):
        count = by_user[setting].get(user, 0)
        # Refused results are in the engine's row, whichever of the two has refused them.
        was_refused = 0 if setting == OPEN_RESULTS else refusals.count(setting, user)
        was_waiting = refusals.wait_count(setting, user)
        yield LimitRow(setting, user.name, maximum, count, was_refused, was_waiting)


def tablespace_limits(served: "Served") -> Iterator[LimitRow]:
    """Yield what one tablespace may have of what all share."""
    shares, refusals = served.shares, served.database.refusals
    if shares.usual_max is not None:
        waits = refusals.wait_count(WORKERS_OF_TABLESPACE)
        count = shares.usual_count
        yield LimitRow(WORKERS_OF_TABLESPACE, "", shares.usual_max, count, 0, waits)
    if served.connections_max is not None:
        name, count = CONNECTIONS_MAX, served.connection_count
        yield LimitRow(name, "", served.connections_max, count, refusals.count(name))
    for share in (served.received, served.parameters, served.results):
        name = share.names.of_tablespace
        yield LimitRow(name, "", share.maximum, share.used, refusals.count(name))


def _user_limits(served: "Served") -> Iterator[LimitRow]:
    """Yield what users of a tablespace may have that is no matter of their roles.

    Those that have some of it, or were refused it.
    """
    refusals = served.database.refusals
    for share in (served.received, served.parameters):
        name, user_max = share.names.of_user, share.user_max
        assert user_max is not None
        held = share.by_user.copy()
        for user in {**held, **dict.fromkeys(refusals.users_of(name))}:
            maximum = share.maximum if share.is_administrator(user) else user_max
            count = refusals.count(name, user)
            yield LimitRow(name, user.name, maximum, held.get(user, 0), count)


def peer_limits(hub: "Hub") -> Iterator[LimitRow]:
    """Yield the limits of those who have not said who they are, in all and of one address."""
    for name, places in list(hub.peer_shares.items()):
        gave_way = places.gave_way_count
        yield LimitRow(f"{name}_max", "", places.count_max, len(places), gave_way)
        most, gave_way = places.most_of_origin, places.of_origin_gave_way_count
        yield LimitRow(f"{name}_of_address_max", "", places.of_origin_max, most, gave_way)


def server_waits(hub: "Hub") -> Iterator[WaitRow]:
    """Yield the sessions whose statements wait for a worker, or for their turns."""
    now_s = hub.clock.monotonic()
    connections = list(hub.connections)
    at_workers = worker_holders(hub)
    for connection in connections:
        wait, session = connection.waits_for(), connection.session_id
        if wait is None or session is None:
            continue
        what, since_s = wait
        held_by = at_workers
        if what != "worker":
            held_by = [
                each.session_id
                for each in connections
                if each.begun_s is not None and connection.waits_for_turn_of(each)
            ]
        shown = tuple(number for number in held_by if number is not None)
        yield WaitRow(session, None, what, max(0.0, now_s - since_s), shown)


def worker_holders(hub: "Hub") -> list[int]:
    """Return the sessions whose statements have the workers, the longest running first."""
    # Each is read once: the loop may end what runs in between.
    looked = ((each.begun_s, each.session_id) for each in list(hub.connections) if each.has_worker)
    found = [
        (begun_s, number)
        for begun_s, number in looked
        if begun_s is not None and number is not None
    ]
    return [number for _, number in sorted(found)]
