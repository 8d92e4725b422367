"""SimulatedLoop: an asyncio event loop with virtual time, for the product's servers and clients.

The same seed and the same calls give the same run. The model:

- A *node* is one life of one process (bookie, client, the world itself). A context variable says
  to which node code belongs; callbacks, tasks and connections inherit it. The ready callbacks of a
  node run in order, as asyncio promises; which node is next is a throw of the dice.
- Time stands still while anything is ready, then jumps to the next timer.
- crash(node) ends a life at once: its callbacks, timers, jobs and connections are gone. Its
  suspended coroutines are kept, unfinished, until close(), when nothing they do has an effect: the
  finally blocks of a dead process never run.
- run_in_executor() is an event like any other: a job of a SimulatedExecutor runs, as a whole, when
  its seeded time has come, one after the other. SimulatedCrash out of a job, or out of a callback,
  crashes its node.
- What asyncio would only log (an exception in a callback or of a task that is not awaited) ends the
  run with SimulationError.
- `trace_hash` sums up what ran, when, where, and every byte that was delivered. It depends on
  neither PYTHONHASHSEED nor addresses of objects.

With `stops_callbacks` the loop of a node is a thread among its threads: a callback may stop where
it is, by stop_until(). Till it goes on no other callback of its node runs, but the threads do, and
so do other nodes.

Connections are those of tests/sim/network.py. There are no real sockets, signals, subprocesses,
threads, name look-ups, or TLS.
"""

import asyncio
import contextvars
import random
import sys
import warnings
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from heapq import heappop, heappush
from typing import Any, Protocol, TypeVar, runtime_checkable
from zlib import crc32

from greenlet import GreenletExit, getcurrent, greenlet

from herdpy.aio.switching import can_wait
from tests.sim.disk import SimulatedCrash
from tests.sim.network import Network, SimulatedServer, SimulatedTransport

T = TypeVar("T")

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_CALLBACKS_WITHOUT_TIME_MAX = 200_000
_TASKS_BEFORE_PRUNING = 64

_NODE: contextvars.ContextVar["Node"] = contextvars.ContextVar("node")


class SimulationError(Exception):
    """The run cannot be right: an unhandled exception, a standstill, or no end in sight."""


class Handle:
    """A callback that waits for its turn or its time; asyncio.TimerHandle as programs see it."""

    __slots__ = (
        "args",
        "callback",
        "context",
        "is_cancelled",
        "is_of_thread",
        "node",
        "number",
        "when_s",
    )

    def __init__(
        self,
        node: "Node",
        number: int,
        when_s: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> None:
        self.node = node
        self.number = number
        self.when_s = when_s
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self.is_cancelled = False
        self.is_of_thread = False
        """A thread waits for it, not the loop."""

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s


class Node:
    """One life of one process; made by SimulatedLoop.add_node()."""

    def __init__(self, loop: "SimulatedLoop", name: str, number: int) -> None:
        self.loop = loop
        self.name = name
        """Also the host name under which connections find it."""
        self.number = number
        self.is_alive = True
        self.is_active = False  # it is in the loop's list of nodes with something ready, or paused
        self.is_paused = False
        self.ready: deque[Handle] = deque()
        self.tasks: list[asyncio.Task[Any]] = []
        self.tasks_before_pruning = _TASKS_BEFORE_PRUNING
        self.transports: dict[int, SimulatedTransport] = {}
        self.servers: dict[int, SimulatedServer] = {}
        self.executor = SimulatedExecutor()
        """For jobs without an executor of their own."""
        self.context = contextvars.copy_context()
        self.context.run(_NODE.set, self)
        self.on_crash: list[Callable[[], object]] = []
        """Called at once in the world's context when the node crashes."""
        self.runner: greenlet | None = None
        """Runs the loop's callbacks, where these may stop."""
        self.stopped: _GoOn | None = None
        """What lets the callback go on that has stopped; others wait for it."""
        self.behind: deque[Handle] = deque()
        """Those that wait for that."""

    def __repr__(self) -> str:
        return f"<{self.name} #{self.number}>"

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call function here and now as code of this node."""
        loop = self.loop
        before, loop.current = loop.current, self
        try:
            return self.context.copy().run(function, *args)
        finally:
            loop.current = before

    def create_task(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a coroutine as code of this node."""
        return self.loop.create_task(coroutine, context=self.context.copy())


class _GoOn:
    """Lets a node's loop go on, where it has stopped."""

    __slots__ = ("loop", "node")

    def __init__(self, loop: "SimulatedLoop", node: Node) -> None:
        self.loop = loop
        self.node = node

    def call(self, _: object = None) -> None:
        if self.node.stopped is self:  # it has not gone on already
            self.loop._go_on(self.node)


class SimulatedExecutor:
    """One worker, or several: jobs begin in order, each takes a time that `duration_s` draws."""

    def __init__(
        self, duration_s: Callable[[], float] = lambda: 0.0, worker_count: int = 1
    ) -> None:
        self.duration_s = duration_s
        self.busy_until_s = [0.0] * worker_count

    def end_of_next(self, now_s: float) -> float:
        """Take a worker for one more job; return when the job is done."""
        busy = self.busy_until_s
        worker = busy.index(min(busy)) if len(busy) > 1 else 0
        end_s = busy[worker] = max(busy[worker], now_s) + self.duration_s()
        return end_s

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: there is no thread. `wait` and `cancel_futures` are of the interface."""


@runtime_checkable
class ThreadLike(Protocol):
    """An executor whose jobs may wait, while others go on: it runs them itself."""

    def begin(self, function: Callable[..., T], *args: Any) -> "asyncio.Future[T]": ...


class SimulatedLoop(asyncio.AbstractEventLoop):
    """See the module. `seed` decides every throw of the dice; close() it in the end."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.trace_hash = 0
        self.callback_count = 0
        self.trace: Callable[[str], object] | None = None
        self.stops_callbacks = False
        """See the module; before anything runs."""
        self._is_in_thread = False
        self._now_s = 0.0
        self._heap: list[tuple[float, int, Handle]] = []
        self._active: list[Node] = []
        self._number = 0
        self._nodes: list[Node] = []
        self._graveyard: list[Any] = []
        self._failure: BaseException | None = None
        self._is_running = False
        self._is_stopping = False
        self._is_closed = False
        self._is_discarding = False  # close() lets the dead rest; nothing has an effect any more
        self.world = self.add_node("world")
        self.current = self.world
        self.network = Network(self)

    # Nodes.

    def add_node(self, name: str) -> Node:
        """Begin a life. A name may be used again when the life before has crashed or ended."""
        node = Node(self, name, len(self._nodes))
        self._nodes.append(node)
        return node

    def crash(self, node: Node) -> None:
        """End a life. Its connections break as the network decides; see the module."""
        if not node.is_alive:
            return
        node.is_alive = False
        self.note(3, node.number)
        if self.trace is not None:
            self.say(f"{node.name} crashes")
        node.ready.clear()
        self._graveyard.append(node.tasks)
        for transport in list(node.transports.values()):
            transport.die()
        for server in list(node.servers.values()):
            server.die()
        for callback in node.on_crash:
            if can_wait():  # in a thread of the node, which would go on no more where it waits
                self.world.run(self.call_soon, callback)
            else:
                self.world.run(callback)

    def pause(self, node: Node, seconds: float) -> None:
        """Let nothing of this node run for a while (SIGSTOP, a long garbage collection)."""
        if node.is_paused or not node.is_alive:
            return
        node.is_paused = True
        if node.is_active:
            self._active.remove(node)
        node.is_active = True  # so that it is not put back
        self.note(4, node.number)
        self.world.run(self.call_later, seconds, self._resume, node)

    def _resume(self, node: Node) -> None:
        node.is_paused = False
        if node.ready:
            self._active.append(node)
        else:
            node.is_active = False

    # The trace.

    def note(self, kind: int, value: int, data: bytes = b"") -> None:
        """Make something that happened a part of the trace hash."""
        trace = self.trace_hash * 1_000_003 + kind * 8191 + value
        self.trace_hash = (trace + crc32(data) * 31) & _MASK

    def say(self, text: str) -> None:
        """Write a line of the trace, if there is one."""
        if self.trace is not None:
            self.trace(f"{self._now_s * 1000:10.3f} ms  {text}")

    # Scheduling, as asyncio wants it.

    def time(self) -> float:
        return self._now_s

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Any:
        if context is None:
            context = contextvars.copy_context()
            node = self.current
        else:
            node = context.get(_NODE) or self.world
        self._number = number = self._number + 1
        handle = Handle(node, number, self._now_s, callback, args, context)
        if node.is_alive and not self._is_discarding:
            node.ready.append(handle)
            if not node.is_active:
                node.is_active = True
                self._active.append(node)
        return handle

    call_soon_threadsafe = call_soon  # jobs run on the loop's own thread

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Any:
        return self.call_at(self._now_s + max(0.0, delay), callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Any:
        is_of_thread = False
        if context is None:
            context = contextvars.copy_context()
            node = self.current
            is_of_thread = self._is_in_thread
        else:
            node = context.get(_NODE) or self.world
        self._number = number = self._number + 1
        handle = Handle(node, number, when, callback, args, context)
        handle.is_of_thread = is_of_thread
        if node.is_alive and not self._is_discarding:
            heappush(self._heap, (when, number, handle))
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **_: Any,
    ) -> "asyncio.Task[T]":
        if context is None:
            context = contextvars.copy_context()
            node = self.current
        else:
            node = context.get(_NODE) or self.world
        if self._is_discarding:
            coro.close()
            raise SimulationError("a coroutine of a dead node wants to start a task")
        task = asyncio.Task(
            coro, loop=self, name=name or getattr(coro, "__qualname__", None), context=context
        )  # type: ignore[arg-type]
        node.tasks.append(task)  # asyncio itself would forget a task without another reference
        if len(node.tasks) > node.tasks_before_pruning:
            self._prune(node, is_end=False)
            node.tasks_before_pruning = len(node.tasks) + _TASKS_BEFORE_PRUNING
        return task

    def _prune(self, node: Node, *, is_end: bool) -> None:
        """Forget the tasks that are done; an exception that was not seen at the end fails the run.

        Before, the task's owner may be about to look at it.
        """
        pending: list[asyncio.Task[Any]] = []
        for task in node.tasks:
            if not task.done():
                pending.append(task)
            elif not task.cancelled() and task._log_traceback:  # type: ignore[attr-defined]
                error = task._exception  # type: ignore[attr-defined]  # exception() counts as seen
                if isinstance(error, SimulatedCrash):
                    self.crash(node)
                    return
                if is_end:
                    self._fail(f"task {task.get_name()} of {node.name} died", error)
                pending.append(task)
        node.tasks = pending

    def check_tasks(self) -> None:
        """Fail the run when a task of a living node died unnoticed."""
        for node in self._nodes:
            if node.is_alive:
                self._prune(node, is_end=True)
        self._raise_failure()

    def pending_tasks(self, node: Node) -> list["asyncio.Task[Any]"]:
        """Return the tasks of a living node that are not done."""
        return [task for task in node.tasks if not task.done()]

    def run_in_executor(
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        if isinstance(executor, ThreadLike):
            return executor.begin(func, *args)
        node = self.current
        worker = executor if isinstance(executor, SimulatedExecutor) else node.executor
        future: asyncio.Future[T] = self.create_future()
        self.call_at(worker.end_of_next(self._now_s), self._run_job, future, func, args)
        return future

    def _run_job(
        self, future: "asyncio.Future[T]", func: Callable[..., T], args: tuple[Any, ...]
    ) -> None:
        if future.cancelled() and self.rng.random() < 0.5:
            return  # the other half had begun when it was cancelled
        events._set_running_loop(None)
        try:
            result = func(*args)
        except SimulatedCrash:
            raise
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)
        finally:
            events._set_running_loop(self)

    # Running.

    def run_until_complete(self, future: Any, *, time_limit_s: float = float("inf")) -> Any:
        """Run until a coroutine (code of the world) or a future is done; return its result."""
        if asyncio.iscoroutine(future):
            future = self.world.create_task(future)
        self._run(future, time_limit_s)
        if not future.done():
            raise SimulationError(f"stopped at {self._now_s:.3f} s before the end")
        return future.result()

    def run_forever(self) -> None:
        self._run(None, float("inf"))

    def run_for(self, seconds: float) -> None:
        """Run what happens in the next seconds; less when nothing is left to do."""
        end_s = self._now_s + seconds
        self._run(None, end_s, is_limit_fine=True)
        self._now_s = max(self._now_s, end_s)

    def stop(self) -> None:
        self._is_stopping = True

    def _run(
        self,
        until: "asyncio.Future[Any] | None",
        time_limit_s: float,
        *,
        is_limit_fine: bool = False,
    ) -> None:
        self._is_running = True
        self._is_stopping = False
        previous = events._get_running_loop()
        events._set_running_loop(self)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._finalize)
        active, heap, draw = self._active, self._heap, self.rng.random
        at_once = 0
        trace = self.trace_hash
        try:
            while not self._is_stopping and (until is None or not until.done()):
                if active:
                    count = len(active)
                    index = int(draw() * count) if count > 1 else 0
                    node = active[index]
                    ready = node.ready
                    handle = ready.popleft() if ready else None
                    if not ready:
                        node.is_active = False
                        active[index] = active[-1]
                        active.pop()
                    if handle is None or handle.is_cancelled:
                        continue
                    at_once += 1
                    if at_once > _CALLBACKS_WITHOUT_TIME_MAX:
                        raise SimulationError(
                            f"{at_once} callbacks at {self._now_s:.3f} s and no end;"
                            f" the next is {handle.callback}"
                        )
                elif heap:
                    when_s, _, handle = heap[0]
                    if handle.is_cancelled:
                        heappop(heap)
                        continue
                    if when_s > time_limit_s:
                        if is_limit_fine:
                            return
                        raise SimulationError(
                            f"not done after {time_limit_s:.3f} s; next {handle.callback}"
                            f" of {handle.node.name} at {when_s:.3f} s"
                        )
                    heappop(heap)
                    node = handle.node
                    if not node.is_alive:
                        continue
                    if when_s > self._now_s:
                        self._now_s = when_s
                        at_once = 0
                    if node.is_paused:
                        node.ready.append(handle)
                        continue
                else:
                    if is_limit_fine or until is None:
                        return
                    raise SimulationError(f"standstill at {self._now_s:.3f} s: nothing is left")
                trace = self.trace_hash * 1_000_003 + handle.number * 64 + node.number
                self.trace_hash = (trace + hash(self._now_s)) & _MASK
                self.callback_count += 1
                self.current = node
                try:
                    if self.stops_callbacks:
                        self._run_stoppable(node, handle)
                    else:
                        handle.context.run(handle.callback, *handle.args)  # type: ignore[arg-type]
                except SimulatedCrash:
                    self.crash(node)
                except (KeyboardInterrupt, SimulationError):
                    raise
                except BaseException as error:
                    self._fail(f"a callback of {node.name} failed: {handle.callback}", error)
                if self._failure is not None:
                    self._raise_failure()
        finally:
            self.current = self.world
            self._is_running = False
            events._set_running_loop(previous)
            sys.set_asyncgen_hooks(*hooks)

    # Callbacks that stop.

    def can_stop(self) -> bool:
        """Return whether the caller is a callback, which may stop where it is."""
        node = self.current
        is_running = node.runner is getcurrent()
        return is_running and node.is_alive and not self._is_discarding

    def stop_until(self, future: "asyncio.Future[Any]", timeout_s: float | None = None) -> None:
        """Stop here until a future is done, or so much time has passed; only where can_stop()."""
        node, task = self.current, asyncio.current_task(self)
        go_on = _GoOn(self, node)
        if timeout_s is not None:
            self.call_later(timeout_s, go_on.call).is_of_thread = True
        future.add_done_callback(go_on.call, context=node.context.copy())
        if task is not None:
            asyncio.tasks._leave_task(self, task)
        node.stopped = go_on
        assert node.runner is not None
        assert node.runner.parent is not None
        node.runner.parent.switch(None)
        if task is not None:
            asyncio.tasks._enter_task(self, task)

    def _run_stoppable(self, node: Node, handle: Handle) -> None:
        if _is_of_thread(handle):
            self._is_in_thread = True
            try:
                handle.context.run(handle.callback, *handle.args)  # type: ignore[arg-type]
            finally:
                self._is_in_thread = False
        elif node.stopped is not None:
            node.behind.append(handle)
        else:
            if node.runner is None:
                node.runner = greenlet(_run_callbacks)
            _raise(node.runner.switch(handle))

    def _go_on(self, node: Node) -> None:
        """Go on where a callback has stopped; as code of the main greenlet."""
        assert node.runner is not None
        node.stopped, self._is_in_thread = None, False
        error = node.runner.switch()
        if node.stopped is None and node.behind:
            node.ready.extendleft(reversed(node.behind))
            node.behind.clear()
            if not node.is_active:
                node.is_active = True
                self._active.append(node)
        _raise(error)

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self.current.is_alive and not self._is_discarding:
            self.create_task(generator.aclose())  # type: ignore[arg-type]

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Let go of everything, also of what never ended; idempotent."""
        if self._is_closed:
            return
        self._is_closed = self._is_discarding = True
        self._heap.clear()
        self._active.clear()
        self.network.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the dead begin is never awaited
            for node in self._nodes:
                node.is_alive = False
                node.ready.clear()
                if node.runner is not None:
                    node.runner.throw()  # before its tasks are, whose threads are its children
                for task in node.tasks:
                    _bury(task)
                node.tasks = []
        self._graveyard.clear()

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: they end when they are forgotten."""

    async def shutdown_default_executor(self, timeout: Any = None) -> None:  # noqa: ASYNC109 - the interface has it
        """Nothing to do: there are no threads."""

    # Errors.

    def _fail(self, message: str, error: BaseException | None) -> None:
        if self._failure is None and not self._is_discarding:
            failure = SimulationError(f"{message}: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._failure = failure

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail the run: nothing may reach this handler."""
        source = context.get("task") or context.get("future")
        if isinstance(source, asyncio.Task) and not self.current.is_alive:
            return
        self._fail(str(context.get("message")), context.get("exception"))

    default_exception_handler = call_exception_handler

    def set_exception_handler(self, handler: Any) -> None:
        raise NotImplementedError("an exception that is not handled fails the run")

    def get_exception_handler(self) -> None:
        return None

    get_debug = staticmethod(bool)  # type: ignore[assignment]
    """False; each future and task asks, so that it is no function of Python."""

    def set_debug(self, enabled: bool) -> None:
        """Stay as it is; there is only one way to run."""

    def get_task_factory(self) -> None:
        return None

    # Connections: tests/sim/network.py.

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        **_: Any,
    ) -> tuple[Any, Any]:
        if ssl is not None:
            raise NotImplementedError("there is no TLS in the simulation")
        assert host is not None
        assert port is not None
        return await self.network.connect(self.current, protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: int | None = None,
        *,
        ssl: object = None,
        start_serving: bool = True,
        **_: Any,
    ) -> Any:
        if ssl is not None:
            raise NotImplementedError("there is no TLS in the simulation")
        return self.network.listen(self.current, protocol_factory, port or 0, lets_in=start_serving)


def _run_callbacks(handle: Handle) -> None:
    """Run one callback after the other, in a greenlet: each switch gives the next one."""
    while True:
        error: BaseException | None = None
        try:
            handle.context.run(handle.callback, *handle.args)  # type: ignore[arg-type]
        except GreenletExit:
            return
        except BaseException as found:
            error = found
        parent = getcurrent().parent
        assert parent is not None
        handle = parent.switch(error)


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error


def _is_of_thread(handle: Handle) -> bool:
    """Return whether a thread goes on by it, and not the loop."""
    owner = getattr(handle.callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return getattr(owner, "is_thread", False)
    return handle.is_of_thread or owner.__class__ is _GoOn


def _bury(task: "asyncio.Task[Any]") -> None:
    """Let go of a task that will never run again; what it wants at its end has no effect."""
    if task.done():
        if not task.cancelled():
            task.exception()
        return
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    try:
        task.get_coro().close()  # type: ignore[union-attr]
    except BaseException:
        return
