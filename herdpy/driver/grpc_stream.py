"""GrpcStream: a session stream of herdpy.proto in place of a TCP connection.

Frames go in and come out, as of bookie/runtime/os_stream.py: BlockingStream, and travel in the
messages of docs/protocols/grpc.md. One thread receives at a time, and one sends. grpc's threads and
the one that reads end with end().
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc

from bookie.runtime.interfaces import Driver
from bookie.runtime.os_process import ThisThread
from herdpy.errors import ProtocolError
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto.messages import FRAME_BYTES_MAX
from herdpy.proto.typed_session import from_reply

SESSION_METHOD = "/herdpy.v1.Herdpy/Session"
_PIECE_BYTES_MAX = 256 * 1024
"""More is cut: a gRPC server takes 4 MiB in one message."""
_WAITING_BYTES_MAX = 1024 * 1024
"""send() waits while grpc has more to send."""
_JOIN_S = 5.0
_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # a TCP connection for each connection
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", 4 * FRAME_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)
_inherited: list["GrpcStream"] = []  # in a forked child: grpc must not free its parent's channels


class GrpcTls(NamedTuple):
    """What a channel needs of TLS; the bytes are PEM."""

    server_name: str
    authority: bytes | None
    """None: those that grpc brings along."""
    key: bytes | None
    chain: bytes | None

    def __repr__(self) -> str:
        return f"GrpcTls({self.server_name!r})"


def _channel(address: str, tls: GrpcTls | None) -> Any:
    if tls is None:
        return grpc.insecure_channel(address, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.chain)
    name = ("grpc.ssl_target_name_override", tls.server_name)  # what the certificate must have
    return grpc.secure_channel(address, credentials, options=(*_OPTIONS, name))


class GrpcStream:
    def __init__(
        self,
        host: str,
        port: int,
        timeout_s: float,
        driver: Driver,
        run_detached: Callable[[Callable[[], object]], object],
        tls: "GrpcTls | None" = None,
    ) -> None:
        """Connect, by TLS if there is any; OSError (TimeoutError after timeout_s)."""
        self._run_detached = run_detached
        self._timeout_s: float | None = timeout_s
        self._incoming: deque[pb.SessionReply] = deque()
        self._has_come = driver.new_bell()
        self._requests = _Requests(driver)
        self._is_open = False
        self._is_over = False
        self._failure: OSError | None = None
        self._grpc_thread: ThisThread | None = None
        self._is_done = driver.new_bell()
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._channel: Any = _channel(address, tls)
        method = self._channel.stream_stream(
            SESSION_METHOD,
            request_serializer=pb.SessionRequest.SerializeToString,
            response_deserializer=pb.SessionReply.FromString,
        )
        self._call: Any = method(self._requests)
        self._call.add_done_callback(self._call_is_done)
        self._reader = driver.spawn("herdpy-grpc", self._read)
        try:
            while not self._is_open:
                if self._is_over:
                    raise self._failure or ConnectionError("the server closed the connection")
                if not self._has_come.wait(timeout_s):
                    raise TimeoutError("timed out")
        except BaseException:
            self.end()
            raise

    def set_timeout(self, timeout_s: float | None) -> None:
        """Let receive() raise TimeoutError after so long; None: never. It may be called again."""
        self._timeout_s = timeout_s

    def send(self, data: bytes) -> None:
        """Send frames, wholly; OSError."""
        for start in range(0, len(data), _PIECE_BYTES_MAX):
            piece = data[start : start + _PIECE_BYTES_MAX]
            # Past the end, what came last may say why it ended: it is received first.
            request = pb.SessionRequest(frames=piece)
            if not self._requests.put(request, len(piece)) and not self._incoming:
                raise self._failure or ConnectionError("the connection is closed")

    def receive(self) -> bytes:
        """Wait for frames and return them; b"" at the end; OSError."""
        while not self._incoming:
            if self._is_over and not self._incoming:
                if self._failure is not None:
                    raise self._failure
                return b""
            if not self._has_come.wait(self._timeout_s):
                raise TimeoutError("timed out")
        try:
            return from_reply(self._incoming.popleft())
        except ProtocolError as error:
            raise ConnectionError(error.message) from None

    def _read(self) -> None:
        """Take what comes; in a thread of its own, because grpc's wait has no time-out."""
        try:
            self._call.initial_metadata()
            if self._call.is_active():
                self._is_open = True
                self._has_come.ring()
            for reply in self._call:
                self._incoming.append(reply)
                self._has_come.ring()
        except grpc.RpcError as error:
            self._failure = _os_error(error)
        finally:
            self._is_over = True
            self._requests.end()
            self._has_come.ring()

    def _call_is_done(self, call: object) -> None:
        self._grpc_thread = ThisThread()
        self._is_done.ring()

    def close(self) -> None:
        """Leave the connection to the parent of a forked process."""
        _inherited.append(self)

    def end(self) -> None:
        """End the connection and its threads; repeatable."""
        self._call.cancel()
        self._requests.end()
        self._reader.join(_JOIN_S)
        if self._grpc_thread is None:
            self._is_done.wait(_JOIN_S)
        self._channel.close()
        for thread in (self._requests.thread, self._grpc_thread):
            if thread is not None:
                thread.join(_JOIN_S)

    def abandon(self) -> None:
        """End the connection from any line of any thread, soon: this one may hold grpc's locks."""
        try:
            self._run_detached(self.end)
        except RuntimeError:
            pass  # the interpreter ends, and with it the connection


class _Requests:
    """The requests that wait to be sent; grpc takes them in a thread of its own."""

    def __init__(self, driver: Driver) -> None:
        self.thread: ThisThread | None = None
        self._waiting: deque[tuple[pb.SessionRequest, int]] = deque()
        self._byte_count_put = 0
        self._byte_count_taken = 0
        self._has_come = driver.new_bell()
        self._has_room = driver.new_bell()
        self._is_over = False

    def put(self, request: pb.SessionRequest, byte_count: int) -> bool:
        """Add a request, when there is room; False: none are sent any more."""
        while self._byte_count_put - self._byte_count_taken > _WAITING_BYTES_MAX:
            if self._is_over:
                return False
            self._has_room.wait()
        if self._is_over:
            return False
        self._byte_count_put += byte_count
        self._waiting.append((request, byte_count))
        self._has_come.ring()
        return True

    def end(self) -> None:
        """Let both sides go."""
        self._is_over = True
        self._has_come.ring()
        self._has_room.ring()

    def __iter__(self) -> "_Requests":
        return self

    def __next__(self) -> pb.SessionRequest:
        if self.thread is None:
            self.thread = ThisThread()
        while not self._waiting:
            if self._is_over:
                raise StopIteration
            self._has_come.wait()
        request, byte_count = self._waiting.popleft()
        self._byte_count_taken += byte_count
        self._has_room.ring()
        return request


def _os_error(error: Any) -> OSError:
    """Return what an end of the stream is to the session."""
    code: grpc.StatusCode = error.code()
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return ConnectionError("what listens there is no herdpy server's gRPC port")
    return ConnectionError(f"{code.name}: {error.details()}")
