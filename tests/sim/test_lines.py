"""Threads and callbacks that are stopped between two statements: the loop, and the hooks."""

import asyncio
import importlib
import random

import pytest

from bookie.runtime.ticket import Ticket
from herdpy.aio.switching import wait_for
from tests.sim.lines import LINED, _lined, preempted
from tests.sim.loop import Node, SimulatedLoop
from tests.sim.switching import LinePreemption, Mutexes, in_thread


def _stopping() -> tuple[SimulatedLoop, Node]:
    loop = SimulatedLoop(1)
    loop.stops_callbacks = True
    return loop, loop.add_node("one")


def test_a_function_calls_the_hook_before_each_statement_in_the_block_alone() -> None:
    lines: list[None] = []
    right = Ticket.complete.__code__
    with preempted(lambda: lines.append(None)):
        Ticket[int]().complete(1)
        assert len(lines) >= 3
    found = len(lines)
    Ticket[int]().complete(1)
    assert len(lines) == found
    assert Ticket.complete.__code__ is right


@pytest.mark.parametrize("name", LINED)
def test_a_module_has_lines(name: str) -> None:
    assert [*_lined(importlib.import_module(name))]


def test_a_callback_that_stops_holds_up_its_loop_and_not_threads_nor_other_nodes() -> None:
    loop, node = _stopping()
    order: list[str] = []

    def stop() -> None:
        order.append("stops")
        loop.stop_until(loop.create_future(), 0.5)
        order.append("goes on")

    def thread() -> None:
        wait_for(asyncio.sleep(0.1))
        order.append("thread")

    node.run(loop.call_soon, stop)
    node.run(loop.call_soon, order.append, "next callback")
    in_thread(node, thread)
    loop.add_node("two").run(loop.call_later, 0.2, order.append, "other node")
    loop.run_for(1.0)
    assert order == ["stops", "thread", "other node", "goes on", "next callback"]
    loop.close()


def test_a_callback_waits_for_a_mutex_that_a_stopped_thread_has() -> None:
    loop, node = _stopping()
    mutex = Mutexes(loop, random.Random(1)).new()
    order: list[str] = []

    def thread() -> None:
        with mutex:
            wait_for(asyncio.sleep(0.1))
            order.append("thread")

    def take() -> None:
        with mutex:
            order.append("callback")

    def give_up() -> None:
        order.append(f"timed out: {not mutex.acquire(timeout=0.01)}")

    in_thread(node, thread)
    node.run(loop.call_later, 0.01, give_up)
    node.run(loop.call_later, 0.05, take)
    loop.run_for(1.0)
    assert order == ["timed out: True", "thread", "callback"]
    loop.close()


def test_one_that_gave_up_takes_no_other_s_turn() -> None:
    loop, node = _stopping()
    mutex = Mutexes(loop, random.Random(1)).new()
    order: list[str] = []

    def hold() -> None:
        with mutex:
            wait_for(asyncio.sleep(0.1))

    def give_up() -> None:
        assert not mutex.acquire(timeout=0.01)

    def take() -> None:
        with mutex:
            order.append("thread")

    in_thread(node, hold)
    node.run(loop.call_later, 0.01, give_up)
    loop.run_for(0.05)
    in_thread(node, take)
    loop.run_for(1.0)
    assert order == ["thread"]
    loop.close()


def test_a_callback_that_has_stopped_does_not_go_on_behind_a_crash() -> None:
    loop, node = _stopping()
    order: list[str] = []

    def stop() -> None:
        loop.stop_until(loop.create_future(), 0.5)
        order.append("goes on")

    node.run(loop.call_soon, stop)
    loop.run_for(0.1)
    loop.crash(node)
    loop.run_for(1.0)
    loop.close()
    assert order == []


def test_chance_stops_threads_and_callbacks() -> None:
    loop = SimulatedLoop(1)
    lines = LinePreemption(loop, random.Random(1), 0.5)
    node, ticket = loop.add_node("one"), Ticket[int]()
    with lines.placed():
        in_thread(node, lambda: ticket.on_done(lambda: None))
        node.run(loop.call_soon, ticket.complete, 1)
        loop.run_for(1.0)
    assert ticket.is_done
    assert lines.count
    loop.close()
