"""Scripts: courses of events that break a ledger store without its rules, and are rare by chance.

Each prepares one ledger of a seed; the rest of the seed stays as rough as it was drawn.

lost fence      bookies answer a fence, and crash before a slow disk has it; they are up again when
                the writer, idle so far, sends its first entry (gotcha G6)
split recovery  the recoverer cannot reach one bookie while it fences, and loses another while it
                reads; an entry on its way to the first arrives after that was asked for it (#2614)
"""

from collections.abc import Callable

from bookie.ledger.distribution import write_set
from tests.sim.ledger.wire import Message, Trigger
from tests.sim.ledger.world import BookieHost, Ledger

_SLOW_SYNC_S = 0.01
_QUICK_SYNC_S = 0.000_5


def prepare(ledger: Ledger) -> None:
    """Called when the ledger has been created, before anything is written."""
    if ledger.plan.script == "lost fence":
        _lose_fences(ledger)
    elif ledger.plan.script == "split recovery":
        _split_recovery(ledger)


def _ensemble(ledger: Ledger) -> list[BookieHost]:
    metadata = ledger.history.metadata
    assert metadata is not None
    hosts = {host.bookie_id: host for host in ledger.world.hosts}
    return [hosts[bookie_id] for bookie_id in metadata.segments[0].ensemble]


def _lose_fences(ledger: Ledger) -> None:
    world = ledger.world

    def crash(message: Message) -> None:
        host = world.host(message.bookie)
        if not world.is_rough or host.node is None:
            return
        host.sync_s = _QUICK_SYNC_S
        host.restart_s = 0.003
        world.say(f"script: {host.name} crashes after a fence")
        world.happen("crash after a fence")
        host.crash(power=True)

    for host in _ensemble(ledger):
        host.sync_s = _SLOW_SYNC_S
        delay_s = 0.001_5 + 0.003 * world.draw()
        world.wire.triggers.append(
            Trigger("fence reply", 1, delay_s, crash, host.name, ledger_id=ledger.history.ledger_id)
        )


def _split_recovery(ledger: Ledger) -> None:
    world, network = ledger.world, ledger.world.loop.network
    plan = ledger.plan
    ensemble = _ensemble(ledger)
    first, second = write_set(0, plan.ensemble_size, plan.write_quorum_size)[:2]
    if world.draw() < 0.5:
        first, second = second, first
    late, early = ensemble[first], ensemble[second]
    writer, recoverer = f"w{ledger.number}", f"r0.{ledger.number}"
    network.link(recoverer, late.name).refusal_count = 1
    network.link(recoverer, early.name).delay_s = 0.000_1

    def hold_writer(message: Message) -> None:
        if world.is_rough:
            network.block(writer, late.name)
            world.loop.call_later(0.5, network.open, writer, late.name)

    def free_writer(message: Message) -> None:
        if message.client == recoverer:
            network.open(writer, late.name)

    def hold_recoverer(message: Message) -> None:
        if message.client == recoverer and world.is_rough:
            world.happen("split recovery")
            world.say(f"script: {recoverer} loses {early.name}")
            network.block(recoverer, early.name)
            world.loop.call_later(0.4, network.open, recoverer, early.name)

    def at(kind: str, host: BookieHost, action: Callable[[Message], None]) -> None:
        world.wire.triggers.append(
            Trigger(kind, 1, -1.0, action, host.name, ledger_id=ledger.history.ledger_id)
        )

    at("add", late, hold_writer)
    # Without the rule that this shows to be needed a recovery's read is one like others.
    for kind in ("recovery read", "read"):
        at(kind, early, hold_recoverer)
        at(f"{kind} reply", late, free_writer)
