"""Ticket: the first outcome counts, callbacks run though threads race and interrupts fall."""

import threading

import pytest

from bookie.runtime.ticket import Ticket


def test_complete() -> None:
    ticket: Ticket[int] = Ticket()
    assert not ticket.is_done
    with pytest.raises(RuntimeError):
        ticket.result()
    ticket.complete(7)
    ticket.complete(8)
    ticket.fail(ValueError("late"))
    assert ticket.is_done
    assert ticket.result() == 7


def test_fail() -> None:
    ticket: Ticket[int] = Ticket()
    ticket.fail(ValueError("first"))
    ticket.complete(8)
    with pytest.raises(ValueError, match="first"):
        ticket.result()


def test_callbacks_run_once_each_before_and_after() -> None:
    ticket: Ticket[None] = Ticket()
    ran: list[str] = []
    ticket.on_done(lambda: ran.append("a"))
    ticket.on_done(lambda: ran.append("b"))
    assert ran == []
    ticket.complete(None)
    ticket.complete(None)
    assert sorted(ran) == ["a", "b"]
    ticket.on_done(lambda: ran.append("c"))
    assert sorted(ran) == ["a", "b", "c"]


def test_forget() -> None:
    ticket: Ticket[None] = Ticket()
    ran: list[str] = []
    callback = lambda: ran.append("a")  # noqa: E731 - the same object twice
    ticket.on_done(callback)
    ticket.forget(callback)
    ticket.forget(callback)
    ticket.complete(None)
    assert ran == []


def test_an_interrupted_completion_can_be_repeated() -> None:
    ticket: Ticket[int] = Ticket()
    ran: list[str] = []
    interrupts = [KeyboardInterrupt()]

    def callback() -> None:
        if interrupts:
            raise interrupts.pop()
        ran.append("a")

    ticket.on_done(callback)
    with pytest.raises(KeyboardInterrupt):
        ticket.complete(1)
    assert ran == []
    ticket.complete(2)
    assert ran == ["a"]
    assert ticket.result() == 1


def test_racing_threads_agree_on_the_outcome() -> None:
    for _ in range(200):
        ticket: Ticket[int] = Ticket()
        seen: list[int] = []
        start = threading.Barrier(4)

        def complete(value: int, ticket=ticket, start=start) -> None:
            start.wait()
            ticket.complete(value)

        def listen(ticket=ticket, start=start, seen=seen) -> None:
            start.wait()
            ticket.on_done(lambda: seen.append(ticket.result()))

        threads = [threading.Thread(target=complete, args=(i,)) for i in range(2)]
        threads += [threading.Thread(target=listen) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) >= 2
        assert set(seen) == {ticket.result()}


def test_await() -> None:
    ticket: Ticket[int] = Ticket()

    async def add_one() -> int:
        return await ticket + 1

    coroutine = add_one()
    assert coroutine.send(None) is ticket
    ticket.complete(1)
    with pytest.raises(StopIteration) as end:
        coroutine.send(None)
    assert end.value.value == 2
