"""ServedPart: what a node is for a tablespace, as the server of its copy has it. No I/O.

While it follows, answers leave at once, and statements are refused that are a leader's, or when
what the copy shows is too old. From where its copy may write until it leads no answer leaves: the
former leader may answer still. While it leads answers leave under its tenure; while it hands over
nothing new begins: that waits, to go on here or to be told which node leads. Implements
herdpy.server.served.Part. One thread, the loop's; what says so any thread.
"""

from collections.abc import Callable
from typing import NamedTuple

from herdpy.cluster.staleness import Staleness
from herdpy.cluster.tenure import Tenure
from herdpy.errors import Error, OperationalError, Retry, SerializationError


class Leader(NamedTuple):
    """The node that leads, as this one knows."""

    node_id: str
    address: str | None

    def __str__(self) -> str:
        return f"node {self.node_id}" + (f" at {self.address}" if self.address else "")


class ServedPart:
    """See the module. `leader` is its owner's to set."""

    def __init__(self, tablespace: str, node_id: str, staleness: Staleness) -> None:
        self._tablespace = tablespace
        self._node_id = node_id
        self.staleness = staleness
        self.leader: Leader | None = None
        """None: none leads, as far as is known."""
        self._tenure: Tenure | None = None
        self._is_held = False
        self._waiting: dict[Callable[[], None], None] = {}
        self.is_deferring = False
        """What is not begun yet waits, while this node hands over."""
        self._deferred: dict[Callable[[], None], None] = {}
        self._has_left = False

    # --- the owner's -----------------------------------------------------------------------------

    def hold(self) -> None:
        """Let no answer leave until lead(): the copy is about to write."""
        self._is_held = True

    def lead(self, tenure: Tenure) -> None:
        """Let answers leave under a tenure; those that wait do so now."""
        self._tenure = tenure
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            tenure.release(each)

    def defer(self) -> None:
        """Let nothing begin until go_on()."""
        self.is_deferring = True

    def go_on(self) -> None:
        """Let begin what has waited for it."""
        self.is_deferring = False
        waiting, self._deferred = self._deferred, {}
        for each in waiting:
            if self._tenure is not None:
                self._tenure.release(each)

    def leave(self) -> None:
        """Note that the part was handed over: what waits was not run, and is another node's."""
        self._has_left = True

    # --- the server's ----------------------------------------------------------------------------

    @property
    def follows(self) -> bool:
        """It neither leads nor is about to; any thread."""
        return self._tenure is None and not self._is_held

    def holds(self) -> bool:
        """Return whether an answer that is made now may leave."""
        tenure = self._tenure
        return not self._is_held if tenure is None else tenure.holds()

    def wait(self, callback: Callable[[], None]) -> None:
        """Call back when that is to be asked again; perhaps never."""
        if self._tenure is None:
            self._waiting[callback] = None
        else:
            self._tenure.wait(callback)

    def wait_to_begin(self, callback: Callable[[], None]) -> None:
        """Call back when what is not begun yet may be; perhaps never."""
        self._deferred[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        """Let something wait no more; repeatable."""
        self._waiting.pop(callback, None)
        self._deferred.pop(callback, None)
        if self._tenure is not None:
            self._tenure.forget(callback)

    @property
    def is_over(self) -> bool:
        """It led, and no answer leaves any more."""
        return self._tenure is not None and self._tenure.is_over

    def reason_not_ready(self, max_staleness_s: float) -> str | None:
        """Return why it cannot serve now what is asked for; without names. Any thread."""
        if self._tenure is not None:
            if self._tenure.holds():
                return None
            return "answers wait: the metadata store does not confirm that this node leads"
        if self._is_held:
            return "answers wait: this node is taking over"
        lag_s = self.staleness.lag_s()
        if lag_s <= max_staleness_s:
            return None
        return (
            f"this node follows, and what it shows may be {_age(lag_s)}: at most "
            f"{max_staleness_s:g} s are allowed"
        )

    def lag_s(self) -> float:
        """Return how old what it shows is at most: 0 while it leads. Any thread.

        Who asks wants to know it well: the end of the log is looked for more often from now on.
        """
        self.staleness.ask()
        return self.known_lag_s()

    def known_lag_s(self) -> float:
        """Return the same, as far as it is known by the way. Any thread."""
        return self.staleness.lag_s() if self._tenure is None else 0.0

    def check_hello(self, read: str, max_staleness_s: float) -> None:
        """Raise 25006, SAFE, for a connection that wants another part, or what is not so old."""
        if self._tenure is not None:
            if read == "follower":
                raise self._refusal(
                    f"node {self._node_id} leads it, and a node that follows is asked for",
                    "read=nearest takes any node",
                )
        elif read not in ("follower", "nearest"):
            raise self._refusal(
                self._follows(),
                "connect there; read=follower or nearest in the URL reads here",
            )
        else:
            self.check_lag(max_staleness_s)

    def check_lag(self, max_staleness_s: float) -> None:
        """Raise 25006, SAFE, when what it shows may be older. Any thread.

        Also while it takes over: until the rest of the log is taken in the copy is what it was.
        """
        if self._tenure is not None:
            return
        self.staleness.ask()
        lag_s = self.staleness.lag_s()
        if lag_s > max_staleness_s:
            raise self._refusal(
                f"{self._follows()}, and what it shows may be {_age(lag_s)}: at most "
                f"{max_staleness_s:g} s are asked for",
                "read from the leader, or another node; max_staleness_s in the URL allows more",
            )

    def write_refusal(self) -> Error:
        """Return what a statement is told that only a leader runs; any thread."""
        # Not SAFE: at a connection that reads from followers it would fail again and again.
        return self._refusal(
            f"{self._follows()}, and the statement was not run: it is the leader's",
            "use a connection to the leader: without read=follower or read=nearest",
            retry=Retry.NEVER,
        )

    def end_error(self) -> Error | None:
        """Return what clients are told as this node's server ends; None: it hands nothing over."""
        if not self._has_left:
            return None
        leader = self.leader
        led = "another node is about to lead it" if leader is None else f"{leader} leads it now"
        return self._refusal(
            f"{led}; node {self._node_id} has handed it over, and what waited was not run",
            "run it there; the driver does so by itself",
        )

    def transaction_error(self) -> Error:
        """Return what a transaction is told that is open for too long while this one hands over."""
        return SerializationError(
            f'tablespace "{self._tablespace}": another node is to lead it, and the transaction was '
            "open for too long meanwhile: it was rolled back",
            hint="Run the whole transaction again.",
        )

    def _follows(self) -> str:
        leader = self.leader
        led = "no node is known to lead it" if leader is None else f"{leader} leads it"
        return f"{led}; node {self._node_id} follows"

    def _refusal(self, why: str, hint: str, *, retry: Retry = Retry.SAFE) -> Error:
        error = OperationalError(
            f'tablespace "{self._tablespace}": {why}', sqlstate="25006", retry=retry, hint=hint
        )
        error.leader = None if self.leader is None else self.leader.address
        return error


def _age(lag_s: float) -> str:
    return f"{lag_s:.1f} s old" if lag_s < 1e6 else "of an age that is not known"
