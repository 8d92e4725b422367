"""Elector: one of all candidates is the auditor, for as long as its vote is the oldest.

A vote is an ephemeral sequence node; the lowest number wins (BookKeeper's own nodes, so that its
auditors stand beside ours). Losing it is noticed: by its session, and by a watch on the votes.
Between the loss and its notice the auditor cannot write, because each of its writes checks the vote
(tasks.py). Source: ZkLedgerAuditorManager.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence

from bookie.autorecovery.formats import candidate_of, vote_bytes
from bookie.autorecovery.tasks import Guard, TaskStore, vote_guard
from bookie.errors import DeposedAuditorError, NoNodeError
from bookie.metadata.interfaces import SessionState, VersionedStore
from bookie.metadata.paths import join, name_of
from bookie.metadata.patience import PATIENCE_S, ask

_VOTE = re.compile(r"V_(-?\d{10})")


def winner(votes: Sequence[str]) -> str | None:
    """Return the vote that leads: that of the lowest number; None: there is none."""
    numbers = {name: int(match[1]) for name in votes if (match := _VOTE.fullmatch(name))}
    return min(numbers, key=lambda name: numbers[name], default=None)


async def current_auditor(store: VersionedStore, tasks: TaskStore) -> str | None:
    """Return the auditor's name, as its vote has it; None: there is no auditor."""
    await ask(store, PATIENCE_S, lambda: store.sync(tasks.votes_path))
    while True:
        try:
            votes = await ask(store, PATIENCE_S, lambda: store.children(tasks.votes_path))
        except NoNodeError:
            return None
        leading = winner(votes)
        if leading is None:
            return None
        path = join(tasks.votes_path, leading)
        try:
            data, _ = await ask(store, PATIENCE_S, lambda path=path: store.read(path))
        except NoNodeError:
            continue  # gone since it was listed
        return candidate_of(data, path)


class Elector:
    """Stands for election with one store; run() until it is cancelled."""

    def __init__(
        self,
        store: VersionedStore,
        tasks: TaskStore,
        candidate: str,
        lead: Callable[[Guard], Awaitable[None]],
    ) -> None:
        """lead(guard) does an auditor's work until it is cancelled, because the vote is gone."""
        self._store = store
        self._tasks = tasks
        self._candidate = candidate
        self._lead = lead
        self._news = asyncio.Event()
        self.is_leading = False

    async def run(self) -> None:
        """Vote, wait, lead, and vote again when the vote is gone."""
        sessions = self._store.on_session(self._on_session)
        watch = self._store.watch_children(self._tasks.votes_path, self._news.set)
        try:
            while True:
                await self._stand(await self._vote())
        finally:
            watch.close()
            sessions.close()

    def _on_session(self, state: SessionState) -> None:
        if state is not SessionState.SUSPENDED:
            self._news.set()

    async def _vote(self) -> str:
        """Return the path of this session's vote, cast now unless it was."""
        votes = self._tasks.votes_path

        async def question() -> str:
            # One whose answer was lost is ours all the same.
            await self._store.sync(votes)
            for name in sorted(await self._store.children(votes)):
                path = join(votes, name)
                stat = await self._store.exists(path)
                if stat is not None and stat.ephemeral_owner == self._store.session_id:
                    return path
            data = vote_bytes(self._candidate)
            return await self._store.create(
                join(votes, "V_"), data, is_ephemeral=True, is_sequence=True
            )

        return await ask(self._store, PATIENCE_S, question)

    async def _stand(self, vote: str) -> None:
        """Lead while the vote is the lowest; return when it is gone."""
        leading: asyncio.Task[None] | None = None
        session_id = self._store.session_id
        try:
            while True:
                self._news.clear()
                votes = await ask(
                    self._store,
                    PATIENCE_S,
                    lambda: self._store.children(self._tasks.votes_path),
                )
                if self._store.session_id != session_id or name_of(vote) not in votes:
                    return
                if leading is None and winner(votes) == name_of(vote):
                    leading = asyncio.get_running_loop().create_task(self._audit(vote))
                    leading.add_done_callback(lambda _: self._news.set())
                    self.is_leading = True
                if leading is not None and leading.done():
                    leading.result()
                    return
                await self._news.wait()
        finally:
            self.is_leading = False
            if leading is not None:
                leading.cancel()
                await asyncio.gather(leading, return_exceptions=True)

    async def _audit(self, vote: str) -> None:
        guard = vote_guard(vote)
        try:
            await self._tasks.announce(vote_bytes(self._candidate), guard)
            await self._lead(guard)
        except DeposedAuditorError:
            pass  # the votes tell what comes next
