"""Webhooks: tell receivers of each change of a bookie's lifecycle, at least once.

The elected auditor does it beside its work. What a receiver was told last is kept in the metadata
store, by URL; what there is to tell is the difference between that and the states, so that an
auditor which takes over tells what is missing (ADR 0051). Changes that are seen while a receiver
does not answer wait in order, EVENTS_MAX of them. A receiver waits for no other, and the lifecycle
for none. Used on one asyncio loop.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from bookie.autorecovery.tasks import Guard, TaskStore
from bookie.errors import BookieError, BookieStartError, DeposedAuditorError
from bookie.lifecycle.operations import UNREADABLE, Json, Operations
from bookie.lifecycle.states import LifecycleState
from bookie.management.http_client import Url, send
from bookie.runtime.interfaces import Clock
from bookie.server.metrics import Figure

_log = logging.getLogger(__name__)
WEBHOOKS_MAX = 8
EVENTS_MAX = 1000
"""That wait for one receiver; beyond it the oldest goes untold, unless it is its bookie's last."""
SECRET_CHARS_MIN = 16
TIMEOUT_S = 10.0
PAUSE_S = 1.0
PAUSE_S_MAX = 300.0
"""Between tries of one receiver; each failure doubles it."""
REMOVED = "Removed"
"""In the place of a lifecycle: the bookie was forgotten, after a drain or without one."""
_NOTES = "webhooks"


class Told(NamedTuple):
    """One stay of a bookie in one state: no other has the same values.

    Within one drain, which `since_ms` tells from others, each state comes once; and `joined_ms`
    tells a bookie that returned after its removal from the one that was removed.
    """

    lifecycle: str
    since_ms: int | None
    joined_ms: int


class Event(NamedTuple):
    """One change to tell."""

    bookie_id: str
    told: Told
    body: bytes
    event_id: str


class Webhook:
    """What one receiver was told and has to be told."""

    def __init__(self, url: Url, told: dict[str, Told]) -> None:
        self.url = url
        self.told = told
        """By bookie; one that is not there is not known to the receiver."""
        self._seen = dict(told)
        self.waiting: deque[Event] = deque()
        self.dropped_count = 0
        self.failures = 0
        """In a row."""
        self.due_s = 0.0

    def see(self, rows: Sequence[Json]) -> None:
        """Take the statuses of all bookies; what changed since the last time waits from now on."""
        now = {str(row["bookie_id"]): row for row in rows}
        for bookie_id, before in list(self._seen.items()):
            row = now.get(bookie_id)
            if row is None or row["joined_ms"] not in (None, before.joined_ms):
                told = Told(REMOVED, None, before.joined_ms)
                self._note(bookie_id, told, {"bookie_id": bookie_id, "lifecycle": REMOVED})
        for bookie_id, row in now.items():
            if row["lifecycle"] != UNREADABLE:
                told = Told(row["lifecycle"], row["since_ms"], row["joined_ms"])
                self._note(bookie_id, told, row)

    def _note(self, bookie_id: str, told: Told, row: Json) -> None:
        before = self._seen.get(bookie_id)
        if told == before:
            return
        _put(self._seen, bookie_id, told)
        event_id = hashlib.sha256(json.dumps((bookie_id, before, told)).encode()).hexdigest()[:32]
        was = None if before is None else before.lifecycle
        record = {"id": event_id, "event": "lifecycle", "from": was, "bookie": row}
        self.waiting.append(Event(bookie_id, told, json.dumps(record).encode(), event_id))
        if len(self.waiting) > EVENTS_MAX:
            self._drop(self.waiting.popleft().bookie_id)

    def _drop(self, bookie_id: str) -> None:
        """Take note that a change goes untold; the last one of a bookie is seen again later."""
        self.dropped_count += 1
        if all(event.bookie_id != bookie_id for event in self.waiting):
            self._seen.pop(bookie_id, None)
            if bookie_id in self.told:
                self._seen[bookie_id] = self.told[bookie_id]

    def delivered(self, event: Event) -> None:
        """Take note that the first that waits was told."""
        assert self.waiting.popleft() is event
        _put(self.told, event.bookie_id, event.told)


def _put(told: dict[str, Told], bookie_id: str, last: Told) -> None:
    if last.lifecycle == REMOVED:
        told.pop(bookie_id, None)
    else:
        told[bookie_id] = last


class Webhooks:
    """See the module. run() while this process is the auditor."""

    def __init__(
        self,
        urls: Sequence[Url],
        secret: bytes,
        tls: ssl.SSLContext | None,
        operations: Operations,
        tasks: TaskStore,
        clock: Clock,
        poll_interval_s: float,
    ) -> None:
        """BookieStartError for a secret that is too short, or too many URLs."""
        if len(urls) > WEBHOOKS_MAX:
            raise BookieStartError(f"webhooks: expected at most {WEBHOOKS_MAX}, found {len(urls)}")
        if len(secret) < SECRET_CHARS_MIN:
            raise BookieStartError(
                f"webhooks: expected a secret of at least {SECRET_CHARS_MIN} bytes in its file, "
                f"found {len(secret)}"
            )
        self._urls = tuple(dict.fromkeys(urls))
        self._secret = secret
        self._tls = tls
        self._operations = operations
        self._tasks = tasks
        self._clock = clock
        self._poll_interval_s = poll_interval_s
        self._hooks: list[Webhook] = []
        self._delivered_count = 0
        self._failed_count = 0

    def figures(self) -> list[Figure]:
        """Return what is counted, for the metrics of the process."""
        waiting = sum(len(hook.waiting) for hook in self._hooks)
        dropped = sum(hook.dropped_count for hook in self._hooks)
        return [
            Figure("bookie_webhooks_delivered", "calls that a receiver took, since the start",
                   self._delivered_count),
            Figure("bookie_webhooks_failed", "calls that none took, since the start",
                   self._failed_count),
            Figure("bookie_webhooks_waiting", "changes that wait for a receiver", waiting),
            Figure("bookie_webhooks_dropped", "changes untold because too many waited", dropped),
        ]  # fmt: skip

    async def run(self, guard: Guard) -> None:
        """Tell every receiver until cancelled, or until the vote of the guard is gone."""
        self._hooks = []
        await asyncio.gather(*(self._serve(url, guard) for url in self._urls))

    async def _serve(self, url: Url, guard: Guard) -> None:
        hook: Webhook | None = None
        while True:
            try:
                if hook is None:
                    hook = Webhook(url, await self._told(url, guard))
                    self._hooks.append(hook)
                hook.see(await self._operations.statuses())
                await self._deliver(hook, guard)
            except DeposedAuditorError:
                return  # another auditor tells what is left
            except BookieError as error:
                _log.warning("webhook %s: %s", url.origin, error)
            except Exception:  # noqa: BLE001 - a defect ends one look, and is told
                _log.exception("webhook %s", url.origin)
            await asyncio.sleep(self._poll_interval_s)

    async def _deliver(self, hook: Webhook, guard: Guard) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < hook.due_s:
            return
        while hook.waiting:
            event = hook.waiting[0]
            problem = await self._post(hook.url, event)
            if problem is not None:
                self._failed_count += 1
                pause_s = min(PAUSE_S * 2 ** min(hook.failures, 30), PAUSE_S_MAX)
                hook.failures += 1
                hook.due_s = asyncio.get_running_loop().time() + pause_s
                _log.warning(
                    "webhook %s: it was not told that bookie %s is %s (%s); again in %g s",
                    hook.url.origin, event.bookie_id, event.told[0], problem, pause_s,
                )  # fmt: skip
                return
            hook.failures = 0
            self._delivered_count += 1
            hook.delivered(event)
            await self._keep(hook.url, hook.told, guard)

    async def _post(self, url: Url, event: Event) -> str | None:
        """Return why the receiver did not take it; None: it did."""
        timestamp = str(self._clock.wall_us() // 1_000_000)
        headers = {
            "X-Bookie-Event": event.event_id,
            "X-Bookie-Timestamp": timestamp,
            "X-Bookie-Signature": f"v1={signature(self._secret, timestamp, event.body)}",
        }
        try:
            status = await send("POST", url, headers, event.body, self._tls, TIMEOUT_S)
        except OSError as error:  # a time-out and TLS's errors are such
            return str(error) or type(error).__name__
        return None if 200 <= status < 300 else f"it answered {status}"

    async def _told(self, url: Url, guard: Guard) -> dict[str, Told]:
        """Return what a receiver was told; a new one knows all bookies, as Active ones."""
        data = await self._tasks.read_note(_path(url))
        if data:
            try:
                found = cast("dict[str, Any]", json.loads(data))
                told = cast("dict[str, list[Any]]", found["told"])
                return {one: Told(*values) for one, values in told.items()}
            except (ValueError, TypeError, KeyError, AttributeError):
                _log.error(
                    "webhook %s: its note is damaged: states other than Active are told again, "
                    "removals since then are not", url.origin,
                )  # fmt: skip
        rows = await self._operations.statuses()
        told = {
            str(row["bookie_id"]): Told(LifecycleState.ACTIVE.value, None, row["joined_ms"])
            for row in rows
            if row["lifecycle"] != UNREADABLE
        }
        await self._keep(url, told, guard)
        return told

    async def _keep(self, url: Url, told: dict[str, Told], guard: Guard) -> None:
        data = json.dumps({"url": url.origin, "told": told}).encode()
        await self._tasks.write_note(_path(url), data, guard)


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return what the header has behind "v1=": HMAC-SHA256 of "timestamp.body", in hexadecimal."""
    return hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _path(url: Url) -> str:
    return f"{_NOTES}/{hashlib.sha256(repr(url).encode()).hexdigest()[:32]}"
