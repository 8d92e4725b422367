"""Who gives way when too many connections of one address, or of all, say nothing."""

import random

from bookie.peer_shares import PeerShares, origin_of


def test_an_address_beyond_its_share_loses_its_oldest() -> None:
    shares: PeerShares[int] = PeerShares(10, 3)
    gone = [shares.add(number, "a") for number in range(5)]
    assert gone == [None, None, None, 0, 1]
    assert shares.add(10, "b") is None
    shares.remove(3)
    shares.remove(3)
    assert shares.add(11, "a") is None
    assert shares.add(12, "a") == 2
    assert (len(shares), shares.most_of_origin) == (4, 3)
    assert (shares.of_origin_gave_way_count, shares.gave_way_count) == (3, 0)


def test_those_that_say_nothing_go_before_one_that_logs_in() -> None:
    shares: PeerShares[int] = PeerShares(10, 4)
    assert shares.add(0, "a") is None
    shares.logs_in(0)
    assert [shares.add(number, "a") for number in range(1, 7)] == [None, None, None, 1, 2, 3]
    shares.logs_in(4)
    shares.logs_in(5)
    shares.logs_in(99)
    assert shares.add(7, "a") == 0  # most are logging in: the oldest of all goes
    assert shares.add(8, "a") == 6


def test_logins_that_are_only_begun_keep_no_newcomer_out() -> None:
    shares: PeerShares[int] = PeerShares(100, 10)
    for number in range(10):
        shares.add(number, "a")
        shares.logs_in(number)
    shares.add(10, "a")  # a newcomer, which says something in a moment
    gone = []
    for number in range(11, 15):
        gone.append(shares.add(number, "a"))
        shares.logs_in(number)
    assert gone == [1, 2, 3, 4]


def test_where_all_is_taken_the_address_with_most_gives_way() -> None:
    shares: PeerShares[str] = PeerShares(5, 4)
    for number in range(4):
        assert shares.add(f"a{number}", "a") is None
    assert shares.add("b0", "b") is None
    assert shares.add("c0", "c") == "a0"
    assert shares.add("b1", "b") == "a1"
    assert (shares.of_origin_gave_way_count, shares.gave_way_count) == (0, 2)
    for name in ("a2", "a3", "b0", "b1", "c0"):
        shares.remove(name)
    assert (len(shares), shares.most_of_origin) == (0, 0)
    assert shares.give_way() is None


def test_neither_bound_is_ever_passed_and_newcomers_always_come_in() -> None:
    rng = random.Random(5)
    shares: PeerShares[int] = PeerShares(8, 3)
    there: dict[int, str] = {}
    for number in range(2_000):
        origin = rng.choice("aaaaabc")
        gone = shares.add(number, origin)
        if gone is not None:
            del there[gone]
        there[number] = origin
        if rng.random() < 0.2:
            number = rng.choice(list(there))
            shares.remove(number)
            del there[number]
        assert len(shares) == len(there) <= 8
        counts = [list(there.values()).count(each) for each in "abc"]
        assert max(counts) <= 3
    assert shares.give_way() in there


def test_what_an_address_counts_as() -> None:
    assert origin_of("10.1.2.3") == "10.1.2.3"
    assert origin_of("::ffff:10.1.2.3") == "10.1.2.3"
    assert origin_of("2001:db8:1:2:3::4") == origin_of("2001:db8:1:2::9") == "2001:db8:1:2::/64"
    assert origin_of("fe80::1%eth0") == "fe80::/64"
    assert origin_of("unix") == "unix"
