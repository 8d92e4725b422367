"""Webhooks: every change is told, signed, in order, again until it is taken, and blocks nothing."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bookie.autorecovery.tasks import TaskStore, vote_guard
from bookie.errors import BookieStartError, IncorrectParameterError
from bookie.ledger.types import BookieId
from bookie.lifecycle.operations import Operations
from bookie.lifecycle.states import Step
from bookie.management import webhooks as module
from bookie.management.http_client import Url
from bookie.management.webhooks import Webhooks, signature
from bookie.metadata.cookies import CookieStore
from bookie.runtime.http import JSON, HttpServer, Page, Request
from tests.fixtures.bookie_node import ID, Cluster, simulate
from tests.fixtures.metadata import SeededRng

SECRET = b"sixteen bytes or more"
URL = Url.of("http://world:9090/hook?token=hidden")


class Receiver:
    """An Api that keeps what it is told, and answers as the test says."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.status = 200

    def owns(self, path: str) -> bool:
        return path == "/hook"

    def refusal(self, request: Request) -> Page | None:
        return None

    async def call(self, request: Request) -> Page:
        self.requests.append(request)
        return Page(self.status, JSON, b"{}")

    async def close(self) -> None:
        pass

    @property
    def told(self) -> list[tuple[str | None, str]]:
        bodies: list[dict[str, Any]] = [json.loads(one.body) for one in self.requests]
        return [(one["from"], one["bookie"]["lifecycle"]) for one in bodies]


@asynccontextmanager
async def receiving(receiver: Receiver, port: int = 9090) -> AsyncGenerator[None]:
    server = HttpServer(lambda path: None, "none", receiver)
    await server.start("world", port)
    try:
        yield
    finally:
        await server.close()


def operations_of(cluster: Cluster) -> Operations:
    return Operations(cluster.store, "/ledgers", SeededRng(3), cluster.clock)


@asynccontextmanager
async def telling(cluster: Cluster, *urls: Url) -> AsyncGenerator[Webhooks]:
    """Tell as an auditor with a vote of its own would."""
    tasks = TaskStore(cluster.store, "/ledgers")
    await tasks.prepare()
    vote = await cluster.store.create(f"{tasks.votes_path}/V_", b"", is_sequence=True)
    hooks = Webhooks(
        urls or (URL,), SECRET, None, operations_of(cluster), tasks, cluster.clock, 1.0
    )
    running = asyncio.get_running_loop().create_task(hooks.run(vote_guard(vote)))
    try:
        yield hooks
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def figures(hooks: Webhooks) -> dict[str, float]:
    return {one.name.removeprefix("bookie_webhooks_"): one.value for one in hooks.figures()}


def test_each_change_is_told_once_and_signed() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.start()
        asked, receiver = operations_of(cluster), Receiver()
        async with receiving(receiver), telling(cluster) as hooks:
            await asyncio.sleep(3)
            assert receiver.told == []
            await asked.drain(BookieId(ID), "ada")
            await cluster.until(lambda: len(receiver.requests) == 1)
            await asked.states.move(BookieId(ID), Step.FAIL, lambda one: one)
            await cluster.until(lambda: len(receiver.requests) == 2)
            await asked.cancel(BookieId(ID))
            await cluster.until(lambda: len(receiver.requests) == 3)
            await asyncio.sleep(10)
        assert receiver.told == [
            ("Active", "Draining"),
            ("Draining", "DrainingFailed"),
            ("DrainingFailed", "Active"),
        ]
        first = receiver.requests[0]
        body = json.loads(first.body)
        assert body["bookie"]["by"] == "ada"
        assert body["id"] == first.headers["x-bookie-event"]
        assert len({one.headers["x-bookie-event"] for one in receiver.requests}) == 3
        stamp = first.headers["x-bookie-timestamp"]
        assert abs(int(stamp) * 1_000_000 - cluster.clock.wall_us()) < 60_000_000
        assert first.headers["x-bookie-signature"] == f"v1={signature(SECRET, stamp, first.body)}"
        assert signature(SECRET, stamp + "0", first.body) not in first.headers["x-bookie-signature"]
        assert figures(hooks) == {"delivered": 3, "failed": 0, "waiting": 0, "dropped": 0}

    simulate(test)


def test_a_receiver_that_fails_is_asked_again_with_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.start()
        asked, receiver = operations_of(cluster), Receiver()
        receiver.status = 500
        async with telling(cluster) as hooks:
            await asked.drain(BookieId(ID), "ada")
            await asyncio.sleep(5)
            assert figures(hooks)["failed"] >= 2  # nothing listens
            async with receiving(receiver):
                await asyncio.sleep(600)
                count = len(receiver.requests)
                assert 3 <= count <= 12
                # The lifecycle goes on meanwhile, and what was seen of it is told in order.
                await asked.states.move(BookieId(ID), Step.FAIL, lambda one: one)
                await asyncio.sleep(5)
                assert figures(hooks)["waiting"] == 2
                receiver.status = 200
                receiver.requests.clear()
                await cluster.until(lambda: len(receiver.requests) == 2, 400.0)
        assert receiver.told == [("Active", "Draining"), ("Draining", "DrainingFailed")]

    simulate(test)
    assert "hidden" not in caplog.text
    assert "http://world:9090" in caplog.text


def test_an_auditor_that_takes_over_tells_what_is_missing_and_no_more() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.start()
        asked, receiver = operations_of(cluster), Receiver()
        async with receiving(receiver):
            async with telling(cluster):
                await asked.drain(BookieId(ID), "ada")
                await cluster.until(lambda: len(receiver.requests) == 1)
                await asyncio.sleep(1)
            await asked.states.move(BookieId(ID), Step.FAIL, lambda one: one)
            receiver.requests.clear()
            async with telling(cluster):
                await asyncio.sleep(5)
        assert receiver.told == [("Draining", "DrainingFailed")]

    simulate(test)


def test_a_deposed_auditor_notes_nothing() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.start()
        asked, receiver = operations_of(cluster), Receiver()
        async with receiving(receiver):
            async with telling(cluster):
                await asyncio.sleep(2)
                (vote,) = await cluster.store.children("/ledgers/underreplication/auditorelection")
                await cluster.store.delete(f"/ledgers/underreplication/auditorelection/{vote}")
                await asked.drain(BookieId(ID), "ada")
                await asyncio.sleep(5)
            folder = "/ledgers/underreplication/webhooks"
            (note,) = await cluster.store.children(folder)
            data, _ = await cluster.store.read(f"{folder}/{note}")
            assert json.loads(data)["told"][ID][0] == "Active"
            async with telling(cluster):
                await asyncio.sleep(5)
        ids = [one.headers["x-bookie-event"] for one in receiver.requests]
        assert receiver.told == [("Active", "Draining")] * 2
        assert ids[0] == ids[1]  # told twice, and to be told as the same

    simulate(test)


def test_a_silent_receiver_holds_up_no_other() -> None:
    class Silent(Receiver):
        async def call(self, request: Request) -> Page:
            await asyncio.sleep(1000)
            raise AssertionError

    async def test(cluster: Cluster) -> None:
        await cluster.start()
        asked, receiver = operations_of(cluster), Receiver()
        silent = Url.of("http://world:9091/hook")
        async with (
            receiving(Silent(), 9091),
            receiving(receiver),
            telling(cluster, silent, URL) as hooks,
        ):
            await asked.drain(BookieId(ID), "ada")
            await asyncio.sleep(5)
            assert receiver.told == [("Active", "Draining")]
            await asyncio.sleep(20)
            assert figures(hooks)["failed"] >= 1

    simulate(test)


async def join(cluster: Cluster, bookie_id: str) -> None:
    await cluster.store.create(f"/ledgers/cookies/{bookie_id}", b"a cookie")


async def forget(cluster: Cluster, bookie_id: str) -> None:
    """As `bookie cookie delete --accept-loss` and `decommission` do: without a drain."""
    await CookieStore(cluster.store, "/ledgers").delete(BookieId(bookie_id))


def test_joining_and_removal_without_a_drain_are_told_each_with_an_id_of_its_own() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.start()
        await join(cluster, "b:2")
        receiver = Receiver()
        async with receiving(receiver), telling(cluster):
            await asyncio.sleep(2)
            for step in (forget, join, forget, join, forget):
                await step(cluster, "b:2")
                await asyncio.sleep(2)
        assert receiver.told == [
            ("Active", "Removed"),
            (None, "Active"),
            ("Active", "Removed"),
            (None, "Active"),
            ("Active", "Removed"),
        ]
        assert len({one.headers["x-bookie-event"] for one in receiver.requests}) == 5

    simulate(test)


def test_a_removal_between_two_looks_is_told_before_the_return() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.start()
        await join(cluster, "b:2")
        receiver = Receiver()
        async with receiving(receiver), telling(cluster):
            await asyncio.sleep(2.5)
            await forget(cluster, "b:2")
            await join(cluster, "b:2")
            await asyncio.sleep(2)
        assert receiver.told == [("Active", "Removed"), (None, "Active")]

    simulate(test)


def test_a_removal_while_no_auditor_looks_is_told_by_the_next_one() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.start()
        await join(cluster, "b:2")
        receiver = Receiver()
        async with telling(cluster):
            await asyncio.sleep(2)
        await forget(cluster, "b:2")
        ids: list[str] = []
        for _ in range(2):  # the first is deposed before it can note what it told
            async with receiving(receiver), telling(cluster) as hooks:
                vote = (await cluster.store.children("/ledgers/underreplication/auditorelection"))[
                    -1
                ]
                await cluster.store.delete(f"/ledgers/underreplication/auditorelection/{vote}")
                await cluster.until(lambda: figures(hooks)["delivered"] == 1)
            ids.append(receiver.requests[-1].headers["x-bookie-event"])
        assert receiver.told == [("Active", "Removed")] * 2
        assert ids[0] == ids[1]

    simulate(test)


def test_the_last_change_of_a_bookie_is_told_though_too_many_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "EVENTS_MAX", 2)

    async def test(cluster: Cluster) -> None:
        await cluster.start()
        for number in range(5):
            await join(cluster, f"b:{number}")
        receiver = Receiver()
        async with telling(cluster) as hooks:
            await asyncio.sleep(2)
            for number in range(5):
                await forget(cluster, f"b:{number}")
            await asyncio.sleep(5)
            assert figures(hooks)["waiting"] == 2
            assert figures(hooks)["dropped"] >= 3
            async with receiving(receiver):
                await cluster.until(lambda: len(receiver.requests) == 5, 900.0)
        bodies = [json.loads(one.body) for one in receiver.requests]
        assert {one["bookie"]["bookie_id"] for one in bodies} == {f"b:{n}" for n in range(5)}
        assert receiver.told == [("Active", "Removed")] * 5

    simulate(test)


def test_too_many_that_wait_lose_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVENTS_MAX", 2)

    async def test(cluster: Cluster) -> None:
        await cluster.start()
        asked, receiver = operations_of(cluster), Receiver()
        async with telling(cluster) as hooks:
            for step in (Step.DRAIN, Step.FAIL, Step.CANCEL):
                await asked.states.move(BookieId(ID), step, lambda one: one)
                await asyncio.sleep(3)
            assert figures(hooks)["dropped"] == 1
            async with receiving(receiver):
                await cluster.until(lambda: len(receiver.requests) == 2, 400.0)
        assert receiver.told == [("Draining", "DrainingFailed"), ("DrainingFailed", "Active")]

    simulate(test)


@pytest.mark.parametrize(
    "text",
    ["", "hook", "ftp://h/x", "http://", "http://u:p@h/secretpath", "http://h:99999/",
     "http://h/a b", "http://h/\r\nX: y", "http://h/#f", "http://h/é", "http://[::1/"],
)  # fmt: skip
def test_urls_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(IncorrectParameterError, match="expected http://host") as caught:
        Url.of(text)
    assert "secretpath" not in str(caught.value)


def test_a_short_secret_and_too_many_urls_are_refused() -> None:
    nothing: Any = None
    with pytest.raises(BookieStartError, match="at least 16 bytes") as caught:
        Webhooks([URL], b"short secret", None, nothing, nothing, nothing, 1.0)
    assert "short secret" not in str(caught.value)
    with pytest.raises(BookieStartError, match="at most 8, found 9"):
        Webhooks([URL] * 9, SECRET, None, nothing, nothing, nothing, 1.0)


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", b"x" * 2000, b"HTTP/1.1 3", b""])
def test_what_is_no_answer_of_http_is_a_failure(answer: bytes) -> None:
    class Other(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.write(answer)
            transport.close()

    async def test(cluster: Cluster) -> None:
        await cluster.start()
        server = await cluster.loop.create_server(Other, "world", 9090)
        async with telling(cluster) as hooks:
            await operations_of(cluster).drain(BookieId(ID), "ada")
            await asyncio.sleep(15)
            assert figures(hooks)["failed"] >= 1
            assert figures(hooks)["delivered"] == 0
        server.close()

    simulate(test)
