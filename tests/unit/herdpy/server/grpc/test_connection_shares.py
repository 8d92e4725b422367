"""Which of gRPC's connections give way."""

from bookie.peer_shares import PeerShares
from herdpy.server.grpc.connections import ConnectionShares, Peer, peer_at


def peers(*ports: int, host: str = "192.0.2.1") -> dict[int, Peer]:
    """Sockets and their peers: a socket has the number of its peer's port."""
    return {port: Peer(host, port) for port in ports}


def test_the_oldest_of_an_address_goes_for_one_more() -> None:
    shares = ConnectionShares(PeerShares(10, 2))
    other = peers(9, host="192.0.2.2")
    assert shares.look(peers(1, 2) | other) == []
    assert shares.look(peers(1, 2, 3, 4) | other) == [1, 2]
    assert shares.look(peers(3, 4) | other) == []
    assert shares.look(peers(3, 5) | other) == []


def test_of_all_the_oldest_of_who_has_most_goes() -> None:
    shares = ConnectionShares(PeerShares(3, 3))
    other = peers(9, host="192.0.2.2")
    assert shares.look(peers(1, 2) | other) == []
    assert shares.look(peers(1, 2) | other | peers(7, host="192.0.2.3")) == [1]


def test_who_was_let_in_needs_no_place() -> None:
    shares = ConnectionShares(PeerShares(10, 1))
    assert shares.look(peers(1)) == []
    shares.let_in(Peer("192.0.2.1", 1))
    assert shares.look(peers(1, 2)) == []
    shares.let_in(Peer("192.0.2.1", 3))  # before any look has seen it
    assert shares.look(peers(1, 2)) == []
    assert shares.look(peers(1, 2, 3)) == []
    for _ in range(5):
        assert shares.look(peers(1, 2, 3)) == []
    assert shares.look(peers(1, 2, 3, 4)) == [2]
    for _ in range(3):
        assert shares.look({}) == []
    assert shares.look(peers(1, 3)) == [1]  # of others that have the ports since


def test_a_peer_has_one_name() -> None:
    assert peer_at("::ffff:192.0.2.1", 5) == peer_at("192.0.2.1", 5)
    assert peer_at("fe80::1%eth0", 5) == peer_at("fe80:0::1", 5)
    assert peer_at("unix", 5) == Peer("unix", 5)
