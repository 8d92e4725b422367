"""kazoo, made fit for one ordered queue: one thread, no request kept back, errors of our own.

Overrides what KazooClient does not offer as a setting; ADR 0009 says why, test_zookeeper.py fails
when a version of kazoo changes what is relied upon. Everything runs on kazoo's own thread but for
_call(), which the thread of the caller enters.
"""

import logging
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import (
    SASL,
    Auth,
    Connect,
    Create,
    Create2,
    SetACL,
    SetData,
    Transaction,
)
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from bookie import errors
from bookie.errors import BookieError, SecurityError, StoreError
from bookie.metadata.zookeeper_login import Login, SaslDigest
from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Tls, context_of
from bookie.runtime.os_rng import OsRng
from bookie.runtime.os_tls.polled import PolledTlsSocket, wait_ready

KAZOO_LOGGER = "bookie.kazoo"
_log = logging.getLogger(KAZOO_LOGGER)
# Each try to reconnect is a warning of kazoo's: for programs that configured logging, not for
# stderr.
_log.addHandler(logging.NullHandler())
# At the level of debugging it logs every request and answer: those of a login with the password in
# them, those with the data of nodes, in which ledgers have theirs, ACLs with unsalted hashes of
# passwords, and the session's own, by which another process ends the session, and with it a leader.
_TELLING = frozenset(
    (Auth, SASL, Connect, Create, Create2, SetData, SetACL, Transaction, tuple, list, bytes)
)
_log.addFilter(
    lambda record: (
        not isinstance(record.args, tuple)
        or not any(type(each) in _TELLING for each in record.args)
    )
)
_TIMEOUT_PER_READ = 1.5
"""kazoo gives up a connection after two thirds of what the session was granted."""
_TURN_SHARE = 0.5
"""Of the session's time-out: a loop that has not turned for so long does not keep it alive."""
_RECONNECT_FIRST_S = 0.02
_RECONNECT_MAX_S = 1.0

_MAPPED: tuple[tuple[type[Exception], type[BookieError]], ...] = (
    (kazoo_errors.NoNodeError, errors.NoNodeError),
    (kazoo_errors.NodeExistsError, errors.NodeExistsError),
    (kazoo_errors.BadVersionError, errors.BadVersionError),
    (kazoo_errors.NotEmptyError, errors.NotEmptyError),
    # A subclass of SessionExpiredError: the connection, not the session, is at its end.
    (kazoo_errors.ConnectionClosedError, errors.StoreConnectionError),
    (kazoo_errors.SessionExpiredError, errors.SessionExpiredError),
    (kazoo_errors.UnknownSessionError, errors.SessionExpiredError),
    (kazoo_errors.ConnectionLoss, errors.StoreConnectionError),
    (kazoo_errors.ConnectionDropped, errors.StoreConnectionError),
    (kazoo_errors.OperationTimeoutError, errors.StoreConnectionError),
    (kazoo_errors.RequestTimeoutError, errors.StoreConnectionError),
    (kazoo_errors.SessionMovedError, errors.StoreConnectionError),
    (kazoo_errors.ThrottledOpError, errors.StoreConnectionError),
    (KazooTimeoutError, errors.StoreConnectionError),
    (kazoo_errors.NoAuthError, errors.StoreAccessError),
    (kazoo_errors.AuthFailedError, errors.StoreAccessError),
    (kazoo_errors.InvalidACLError, errors.StoreAccessError),
    (kazoo_errors.SessionClosedRequireSaslError, errors.StoreAccessError),
)


def store_error(error: Exception, path: str) -> BookieError:
    """Return our error for one of kazoo's; what we do not know is a StoreError that names it."""
    for theirs, ours in _MAPPED:
        if isinstance(error, theirs):
            text = f"{path}: {_TEXTS.get(ours, 'refused by ZooKeeper')}"
            if ours is not errors.StoreConnectionError and str(error):
                text += f" ({error})"
            return ours(text, path) if issubclass(ours, StoreError) else ours(text)
    return StoreError(f"{path}: ZooKeeper answered {type(error).__name__} {error}".rstrip(), path)


NOT_ALLOWED = (
    "the node's ACL does not let this session do it: the cluster is secured in ZooKeeper; log in "
    "as the user that it is secured for (--zookeeper-login FILE; in a URL zookeeper_login=FILE)"
)
_TEXTS: dict[type[BookieError], str] = {
    errors.NoNodeError: "expected a node, found none",
    errors.NodeExistsError: "expected no node, found one",
    errors.BadVersionError: "its version is not the expected one",
    errors.NotEmptyError: "expected no children, found some",
    errors.StoreAccessError: NOT_ALLOWED,
    errors.SessionExpiredError: "the session with ZooKeeper expired before the answer",
    errors.StoreConnectionError: "the connection to ZooKeeper broke before the answer",
}


Failed = Callable[[str, str, ssl.SSLError | None], None]
"""Told with which server, "host:port", why, and of what TLS has failed; None: it was not TLS."""


class _Inline:
    """Stands for kazoo's queue of completions: runs them at once, on the connection's thread."""

    def put(self, function: Callable[[], None]) -> None:
        function()


class _InlineHandler(SequentialThreadingHandler):
    """kazoo's handler without its two worker threads, which would lose the order of events."""

    def __init__(self, tls: Tls | None, on_failed: Failed) -> None:
        super().__init__()
        self.completion_queue = _Inline()
        self._tls = tls
        self._on_failed = on_failed

    def create_connection(self, *arguments: Any, **options: Any) -> Any:
        """Connect as kazoo's connection asks for it, by TLS where that is wanted."""
        if self._tls is None:
            return super().create_connection(*arguments, **options)
        name = options["hostname"]
        try:
            return PolledTlsSocket(
                options["address"], options["timeout"], context_of(self._tls), name
            )
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or str(error)
            self._on_failed(f"{name}:{options['address'][1]}", reason, error)
            raise

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: object, timeout: float | None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait until some are ready, at most `timeout` seconds (None: for ever); return which.

        kazoo's own makes, fills and closes an epoll for each of the five waits of a request, which
        was more than half of a request's processor time.
        """
        return *wait_ready(readers, writers, timeout), []

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)


class _Connection(ConnectionHandler):
    """kazoo's connection, whose session counts as connected when it has logged in, not before.

    A login that is refused is a connection that failed, to be tried again: the original gives up
    for good, and a bookie would be lost by one server with a wrong file of users.
    """

    client: "OrderedClient"

    def _connect(self, host: str, hostip: str, port: int) -> tuple[int, int]:
        self.client.is_logged_in = False
        try:
            found = super()._connect(host, hostip, port)
        except (kazoo_errors.AuthFailedError, SecurityError) as error:
            reason = str(error) or "refused"
            self.client.on_refused(f"{host}:{port}: {reason}")
            raise kazoo_errors.ConnectionDropped(f"login: {reason}") from error
        except (kazoo_errors.ConnectionDropped, KazooTimeoutError) as error:
            self.client.on_failed(f"{host}:{port}", str(error), None)
            raise
        read_timeout_ms, _ = found
        self.client.granted_timeout_s = read_timeout_ms * _TIMEOUT_PER_READ / 1000
        self.client.let_in()
        return found

    def _send_ping(self, connect_timeout: float) -> None:
        """Keep the session alive, unless the loop hangs that the client works for."""
        if self.client.is_turning(_TURN_SHARE * self.client.granted_timeout_s):
            super()._send_ping(connect_timeout)
        elif not self.client.is_silent:
            _log.error("the loop hangs: its session with ZooKeeper is not kept alive")
            self.client.is_silent = True

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        login = self.client.sasl_login
        assert login is not None
        exchange = SaslDigest(login, OsRng().randbytes(16).hex())
        answer = exchange.answer(self._say(1, b"", timeout))
        exchange.check(self._say(2, answer, timeout))

    def _say(self, xid: int, token: bytes, timeout: float) -> bytes:
        self._submit(SASL(token), timeout, xid)
        header, buffer, offset = self._read_header(timeout)
        if header.xid != xid:
            raise kazoo_errors.ConnectionDropped(f"expected xid {xid}, found {header.xid}")
        if header.err:
            refusal: type[Exception] = kazoo_errors.EXCEPTIONS[header.err]
            raise refusal
        said, _ = SASL.deserialize(buffer, offset)
        return said or b""


class OrderedClient(KazooClient):
    """KazooClient that takes requests only while it is connected, and logged in.

    The original queues what comes while it reconnects and sends it on the next connection.
    on_refused is told, on kazoo's thread, why ZooKeeper refuses a login; on_failed why a try to
    connect has failed. is_turning is asked there before each ping: no loop has hung for so many
    seconds.
    """

    def __init__(
        self,
        hosts: str,
        session_timeout_s: float,
        logins: Sequence[Login] = (),
        *,
        tls: Tls | None = None,
        on_refused: Callable[[str], None] = lambda _: None,
        is_turning: Callable[[float], bool] = lambda _: True,
        on_failed: Failed = lambda *_: None,
    ) -> None:
        self._gate = new_mutex()
        digests = [f"{login.user}:{login.password}" for login in logins if login.scheme == "digest"]
        self.is_logged_in = False
        self.granted_timeout_s = session_timeout_s
        """Of the session, as the last server said it that was connected to."""
        self.on_refused = on_refused
        self.is_turning = is_turning
        self.is_silent = False
        """Of a hanging loop the log was told; ZooKeeper ends the session, and there is another."""
        self.on_failed = on_failed
        super().__init__(
            hosts=hosts,
            timeout=session_timeout_s,
            handler=_InlineHandler(tls, on_failed),
            use_ssl=tls is not None,  # which its log tells of
            logger=_log,
            auth_data=[("digest", digest) for digest in digests],
            connection_retry=KazooRetry(
                max_tries=-1, delay=_RECONNECT_FIRST_S, max_delay=_RECONNECT_MAX_S
            ),
        )
        sasl = self.sasl_login = next((one for one in logins if one.scheme == "sasl"), None)
        retry = self._conn_retry
        assert retry is not None  # as it was given
        self._connection = _Connection(
            self,
            retry.copy(),
            logger=self.logger,
            sasl_options=None if sasl is None else {"mechanism": "DIGEST-MD5"},
        )

    def let_in(self) -> None:
        """Count as connected, behind the login; on kazoo's thread."""
        self.is_logged_in = True
        self._session_callback(KeeperState.CONNECTED)

    def _session_callback(self, state: str) -> None:
        if state == KeeperState.CONNECTED and not self.is_logged_in:
            return
        with self._gate:
            super()._session_callback(state)

    def _call(self, request: Any, async_object: Any) -> Any:
        with self._gate:
            if self._state == KeeperState.CONNECTED:
                return super()._call(request, async_object)
        async_object.set_exception(kazoo_errors.ConnectionLoss())
        return None

    def forget_watcher(self, path: str, watcher: Callable[..., None], *, is_children: bool) -> None:
        """Drop a watcher that has no user any more; only on kazoo's thread.

        The server's own watch stays until it fires: one for each path, however many asked.
        """
        by_path = self._child_watchers if is_children else self._data_watchers
        watchers = by_path.get(path)
        if watchers is not None:
            watchers.discard(watcher)
            if not watchers:
                del by_path[path]
