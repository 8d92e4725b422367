"""What a bookie publishes of itself: BookieServiceInfo, the content of its registration.

protobuf, binary (formats.proto; docs/formats/zookeeper.md has the bytes). Empty content is that of
old bookies: then host and port are those that the bookie's id spells. Content without an endpoint
of protocol "bookie-rpc" names no address at all. Source: Apache BookKeeper's BP-41.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.message import DecodeError

from bookie.errors import CorruptFileError
from bookie.ledger.types import BookieId
from bookie.metadata.acl import StoreAccess
from bookie.metadata.formats_pb2 import BookieServiceInfoFormat

BOOKIE_ENDPOINT_ID = "bookie"
BOOKIE_PROTOCOL = "bookie-rpc"
HTTP_ENDPOINT_ID = "httpserver"
HTTP_PROTOCOL = "http"
LOGINS_PROPERTY = "zookeeper.logins"
SECURED_PROPERTY = "zookeeper.secured"
_PORT_MAX = 65535
_PORT_DIGITS_MAX = 5


class Address(NamedTuple):
    """Where to connect to."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One thing that listens."""

    id: str
    host: str
    port: int
    protocol: str
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """All endpoints of a bookie, and free text beside them."""

    endpoints: tuple[Endpoint, ...]
    properties: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of_bookie(
        address: Address, http: Address | None = None, access: StoreAccess | None = None
    ) -> "ServiceInfo":
        """Return what our bookies publish; access: that of their store.

        Of logins it tells what `bookie acl set` has to know before it locks a bookie out: labels,
        which hold no secret. Without a login there is no property, as in Apache's.
        """
        endpoints = [Endpoint(BOOKIE_ENDPOINT_ID, address.host, address.port, BOOKIE_PROTOCOL)]
        if http is not None:
            endpoints.append(Endpoint(HTTP_ENDPOINT_ID, http.host, http.port, HTTP_PROTOCOL))
        properties: dict[str, str] = {}
        if access is not None and access.identities:
            labels = (identity.label() for identity in access.identities)
            properties[LOGINS_PROPERTY] = " ".join(labels)
            properties[SECURED_PROPERTY] = str(access.is_secured).lower()
        return ServiceInfo(tuple(endpoints), properties)

    @property
    def logins(self) -> frozenset[str]:
        """The labels of the logins that the bookie says it has in ZooKeeper."""
        return frozenset(self.properties.get(LOGINS_PROPERTY, "").split())

    @property
    def makes_secured_nodes(self) -> bool:
        return self.properties.get(SECURED_PROPERTY) == "true"

    @property
    def address(self) -> Address | None:
        """Where ledgers are served; None: nowhere that a client can find."""
        for endpoint in self.endpoints:
            is_ours = endpoint.protocol == BOOKIE_PROTOCOL
            if is_ours and endpoint.host and 0 < endpoint.port <= _PORT_MAX:
                return Address(endpoint.host, endpoint.port)
        return None

    @property
    def http_address(self) -> Address | None:
        """Where the bookie's HTTP endpoints are; None: it says of none."""
        for endpoint in self.endpoints:
            is_http = endpoint.protocol == HTTP_PROTOCOL and endpoint.id == HTTP_ENDPOINT_ID
            if is_http and endpoint.host and 0 < endpoint.port <= _PORT_MAX:
                return Address(endpoint.host, endpoint.port)
        return None

    def to_bytes(self) -> bytes:
        message = BookieServiceInfoFormat()
        for endpoint in self.endpoints:
            message.endpoints.add(
                id=endpoint.id,
                host=endpoint.host,
                port=endpoint.port,
                protocol=endpoint.protocol,
                auth=endpoint.auth,
                extensions=endpoint.extensions,
            )
        message.properties.update(self.properties)
        return message.SerializeToString(deterministic=True)

    @staticmethod
    def from_bytes(data: bytes, bookie_id: BookieId) -> "ServiceInfo":
        """Read what a bookie published; CorruptFileError when it is no service info.

        Empty data: what the id says, if it is host:port; else no endpoint.
        """
        if not data:
            address = address_in(bookie_id)
            return ServiceInfo(()) if address is None else ServiceInfo.of_bookie(address)
        message = BookieServiceInfoFormat()
        try:
            message.ParseFromString(data)
            if not message.IsInitialized():
                raise DecodeError("an endpoint lacks its id, port, host or protocol")
            endpoints = tuple(map(_endpoint, message.endpoints))
            properties = {_text(k): _text(v) for k, v in message.properties.items()}
        except (DecodeError, UnicodeDecodeError) as error:
            raise CorruptFileError(
                f"bookie {bookie_id}: expected its service info, found {len(data)} bytes that are "
                f"none ({error})"
            ) from error
        return ServiceInfo(endpoints, properties)


def address_in(bookie_id: BookieId) -> Address | None:
    """Return the host and port that an id spells ("host:port"), or None if it does not."""
    host, colon, port_text = bookie_id.rpartition(":")
    is_number = port_text.isascii() and port_text.isdigit()
    if not (colon and host and is_number and len(port_text) <= _PORT_DIGITS_MAX):
        return None
    port = int(port_text)
    return Address(host, port) if 0 < port <= _PORT_MAX else None


def _endpoint(e: BookieServiceInfoFormat.Endpoint) -> Endpoint:
    return Endpoint(
        _text(e.id),
        _text(e.host),
        e.port,
        _text(e.protocol),
        tuple(map(_text, e.auth)),
        tuple(map(_text, e.extensions)),
    )


def _text(text: str | bytes) -> str:
    """Return text as it is; UnicodeDecodeError for what protobuf could not take for text."""
    return text.decode() if isinstance(text, bytes) else text
