"""What a server adds to syslimits and syswaits: its own limits, its users', and waits for workers.

The numbers are the loop's; rows are made of them by any thread.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from herdpy.engine.limit_rows import LimitRow, WaitRow, role_maxima
from herdpy.model.role_settings import CONNECTIONS, OPEN_RESULTS, RUNNING_STATEMENTS, TIMEOUTS
from herdpy.server.limits import RESULTS_OF_TABLESPACE

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
        "request_bytes_max": hub.received.used,
        "parameter_bytes_max": hub.parameters.used,
        "response_bytes_max": hub.stalled.byte_count,
    }
    for name, count in used.items():
        yield LimitRow(name, "", getattr(config, name), count, refused.get(name, 0))
    yield LimitRow("results_max", "", config.results_max, hub.results.used, hub.results.refused)
    results, refusals = served.results, served.database.refusals
    was_refused = refusals.count(RESULTS_OF_TABLESPACE)
    yield LimitRow(RESULTS_OF_TABLESPACE, "", results.count_max, results.count, was_refused)
    yield from peer_limits(hub)
    running = workers.usual_count - workers.waiting_count
    yield LimitRow("workers", "", config.workers, running, 0, workers.waits)
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


def peer_limits(hub: "Hub") -> Iterator[LimitRow]:
    """Yield the limits of those who have not said who they are, in all and of one address."""
    for name, places in list(hub.peer_shares.items()):
        gave_way = places.gave_way_count
        yield LimitRow(f"{name}_max", "", places.count_max, len(places), gave_way)
        most, gave_way = places.most_of_origin, places.of_origin_gave_way_count
        yield LimitRow(f"{name}_of_address_max", "", places.of_origin_max, most, gave_way)


def server_waits(hub: "Hub", served: "Served") -> Iterator[WaitRow]:
    """Yield the sessions whose statements wait for a worker, or for the turn of their user.

    In `default` those of all tablespaces, as in sysclients; in another one its own.
    """
    now_s = hub.clock.monotonic()
    is_of_all = served is hub.default
    connections = [each for each in list(hub.connections) if is_of_all or each.is_of(served)]
    own = {each.session_id for each in connections}
    at_workers = [number for number in worker_holders(hub) if is_of_all or number in own]
    for connection in connections:
        wait, session = connection.waits_for(), connection.session_id
        if wait is None or session is None:
            continue
        what, since_s = wait
        held_by = at_workers
        if what == "turn":
            held_by = [
                each.session_id
                for each in connections
                if each.shares_turns_with(connection) and each.begun_s is not None
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
