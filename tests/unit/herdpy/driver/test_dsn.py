"""What a target names."""

import os
from pathlib import Path

import pytest

from herdpy.driver.dsn import (
    PLACES_MAX,
    Address,
    RemoteTarget,
    Target,
    ZooKeeper,
    address_of,
    parse_target,
    with_password,
    with_tablespace,
)
from herdpy.errors import Error, InterfaceError, NotSupportedError


def test_memory() -> None:
    assert parse_target(":memory:").path is None


def test_every_spelling_of_a_directory_is_one_path(in_directory) -> None:
    (in_directory / "data").mkdir()
    (in_directory / "link").symlink_to("data")
    real = str((in_directory / "data").resolve())
    spellings = ["data", "./data", "data/", "link", in_directory / "data", f"{real}/../data"]
    assert {parse_target(spelling).path for spelling in spellings} == {real}
    assert not (in_directory / "missing").exists()
    assert parse_target("missing").path == os.path.join(os.path.realpath("."), "missing")


@pytest.mark.parametrize("name", ["a:b@c", "12:00@host.backup", "herd:", "herd;x", "user@host"])
def test_a_path_object_is_a_path(name: str, in_directory: Path) -> None:
    assert parse_target(Path(name)) == Target(str(in_directory.resolve() / name))


@pytest.mark.parametrize(
    "url", ["herd://host", "HERD+grpc://ada:secret@host/x", "herd+zk://ada:secret@zk"]
)
def test_a_path_object_of_a_url_is_refused(url: str) -> None:
    with pytest.raises(InterfaceError, match="expected herd://") as caught:
        parse_target(Path(url))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("target", ["herd+etcd://e1,e2/herd", "HTTP://x"])
def test_other_schemes_are_refused(target: str) -> None:
    with pytest.raises(NotSupportedError, match="not supported") as caught:
        parse_target(target)
    assert caught.value.sqlstate == "0A000"
    assert "directory" in str(caught.value.hint)


@pytest.mark.parametrize("target", ["", "a\0b", b"data", None, 5, True])
def test_what_is_no_target(target) -> None:
    with pytest.raises(InterfaceError, match="expected a path"):
        parse_target(target)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("herd://host", RemoteTarget(host="host", port=7000, tablespace="default")),
        ("HERD://host:1/", RemoteTarget(host="host", port=1, tablespace="default")),
        ("herd://[::1]:7001/a%20b", RemoteTarget(host="::1", port=7001, tablespace="a b")),
        (
            "herd://h/t?connect_timeout_s=2.5&application_name=etl",
            RemoteTarget(
                host="h", port=7000, tablespace="t", connect_timeout_s=2.5, application_name="etl"
            ),
        ),
        (
            "herd://h/t?spin_us=0",
            RemoteTarget(host="h", port=7000, tablespace="t", spin_us=0),
        ),
        (
            "herd://h/t?retry_timeout_s=0",
            RemoteTarget(host="h", port=7000, tablespace="t", retry_timeout_s=0.0),
        ),
        ("herd://h/t?read=leader", RemoteTarget(host="h", port=7000, tablespace="t")),
        (
            "herd://a,b:7001,[::1]:7002/t",
            RemoteTarget(
                host="a",
                port=7000,
                others=(Address("b", 7001), Address("::1", 7002)),
                tablespace="t",
                connect_timeout_s=3.0,
                retry_timeout_s=30.0,
            ),
        ),
        (
            "herd://ada:a,b@[::1],[::2]/?connect_timeout_s=1&retry_timeout_s=0&tls=off",
            RemoteTarget(
                host="::1",
                port=7000,
                others=(Address("::2", 7000),),
                tablespace="default",
                connect_timeout_s=1.0,
                retry_timeout_s=0.0,
                user="ada",
                password="a,b",
                tls=False,
            ),
        ),
        (
            "herd+grpc://a,b",
            RemoteTarget(
                host="a",
                port=7001,
                others=(Address("b", 7001),),
                tablespace="default",
                is_grpc=True,
                connect_timeout_s=3.0,
                retry_timeout_s=30.0,
            ),
        ),
        (
            "herd+zk://zk1,zk2:2182/sales?read=leader",
            RemoteTarget(
                host="zk1",
                port=2181,
                others=(Address("zk2", 2182),),
                root="/herd",
                tablespace="sales",
                connect_timeout_s=3.0,
                retry_timeout_s=30.0,
            ),
        ),
        (
            "HERD+ZK://zk?root=/a/b",
            RemoteTarget(
                host="zk",
                port=2181,
                root="/a/b",
                tablespace="default",
                connect_timeout_s=3.0,
                retry_timeout_s=30.0,
            ),
        ),
    ],
)
def test_urls(url: str, expected: RemoteTarget) -> None:
    assert parse_target(url) == expected


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("herd://", "expected herd://host"),
        ("herd://h/a/b", "expected herd://host"),
        ("herd://h/a#b", "expected herd://host"),
        ("herd://h:99999", "is no URL"),
        ("herd://[::1", "is no URL"),
        ("herd://h/?connect_timeout=2", "did you mean 'connect_timeout_s'"),
        ("herd://h/?zzz=2", "known: connect_timeout_s, application_name"),
        ("herd://h/?connect_timeout_s=0", "expected seconds"),
        ("herd://h/?spin_us=-1", "expected microseconds up to 10000, or 0"),
        ("herd://h/?retry_timeout_s=-1", "expected seconds up to 86400, or 0"),
        ("herd://h/?retry_timeout=2", "did you mean 'retry_timeout_s'"),
        ("herd://h/?connect_timeout_s=nan", "expected seconds"),
        ("herd://h/?connect_timeout_s", "is no URL"),
        ("herd://h/?application_name=a&application_name=b", "given twice"),
        ("herd://a,,b", "with commas between them"),
        ("herd://a,", "with commas between them"),
        ("herd+zk://", "with commas between them"),
        ("herd+zk://zk/a/b", "with commas between them"),
        ("herd://a,b:x", "port of digits"),
        ("herd://a,b:99999", "port of digits"),
        ("herd://a,[::1", "is no URL"),
        ("herd://a,b,a:7000", "a:7000 is in the URL twice"),
        (f"herd://{','.join(f'h{n}' for n in range(PLACES_MAX + 1))}", "expected at most 32"),
        ("herd+zk://zk?root=herd", "root: expected a path of ZooKeeper, such as /herd"),
        ("herd+zk://zk?root=/", "root: expected a path"),
        ("herd+zk://zk?root=/a/", "root: expected a path"),
        ("herd+zk://zk?root=/a/../b", "root: expected a path"),
        ("herd://a,b?root=/herd", "is of herd+zk:// URLs"),
        ("herd:/a,b", "with commas between them"),
        ("herd+zk:/zk", "with commas between them"),
    ],
)
def test_urls_that_are_wrong(url: str, message: str) -> None:
    with pytest.raises(InterfaceError) as caught:
        parse_target(url)
    assert message in str(caught.value)


def test_a_user_and_a_password() -> None:
    found = parse_target("herd://ad%40a:se%3Acret@host")
    assert isinstance(found, RemoteTarget)
    assert (found.user, found.password) == ("ad@a", "se:cret")
    assert "cret" not in repr(found) + found.where
    assert with_password(parse_target("herd://ada@host"), "x") == parse_target("herd://ada:x@host")


@pytest.mark.parametrize("target", [":memory:", "./data", "herd://h", "herd://a:b@h"])
def test_a_password_that_has_no_place(target: str) -> None:
    with pytest.raises(InterfaceError, match="password"):
        with_password(parse_target(target), "secret")


@pytest.mark.parametrize(
    "url",
    [
        "herd://ada:secret@h:99999",
        "herd://ada:se/cret@h/a/b/secret@",
        "herd://ada:secret@h/a#b",
        "herd://:secret@h",
        "herd+zk://ada:secret@h/a/b",
        "herd+zk:/ada:secret@h",
        "herd://ada:secret@a,b:x",
        "herd://ada:secret@[::1",
        "herd://ada:secret\uff03@h",
    ],
)
def test_no_error_shows_a_password(url: str) -> None:
    with pytest.raises(Error) as caught:
        parse_target(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "has_tls"),
    [
        ("herd://h", True),
        ("herd://10.0.0.1", True),
        ("herd://h/?tls=off", False),
        ("herd://localhost", False),
        ("herd://127.0.0.2", False),
        ("herd://[::1]", False),
        ("herd://localhost/?tls=on", True),
        ("herd://localhost/?tls_authority=ca.pem", True),
    ],
)
def test_tls_is_for_all_that_leaves_the_machine(url: str, has_tls: bool) -> None:
    found = parse_target(url)
    assert isinstance(found, RemoteTarget)
    assert found.has_tls is has_tls


@pytest.mark.parametrize(
    "query",
    ["tls=maybe", "tls_authority=", "tls_key=k.pem", "tls=off&tls_authority=ca.pem", "tls_ca=x"],
)
def test_options_of_tls_that_make_no_sense(query: str) -> None:
    with pytest.raises(InterfaceError, match="tls"):
        parse_target(f"herd://h/?{query}")


def test_windows_drive_and_colons_are_paths() -> None:
    assert parse_target("c:/data").path is not None
    assert parse_target("a:b//c").path is not None


def test_half_a_character_is_refused_before_it_is_sent_or_looked_for() -> None:
    for refused in (
        lambda: with_tablespace(Target(None), "\ud800"),
        lambda: parse_target("herd://ada:secret@host/\ud800"),
    ):
        with pytest.raises(InterfaceError, match="surrogate") as found:
            refused()
        assert "secret" not in str(found.value)
        str(found.value).encode()


@pytest.mark.parametrize("value", ["", "Leader", "leader,follower"])
def test_who_is_read_from_is_one_of_three(value: str) -> None:
    with pytest.raises(InterfaceError, match="read: expected leader, follower or nearest"):
        parse_target(f"herd+zk://zk?read={value}")


@pytest.mark.parametrize("place", ["herd://h", "herd://a,b", "herd+zk://zk"])
def test_reads_of_nodes_that_follow(place: str) -> None:
    found = parse_target(f"{place}/t?read=nearest&max_staleness_s=2.5")
    assert isinstance(found, RemoteTarget)
    assert (found.read, found.max_staleness_s) == ("nearest", 2.5)
    usual = parse_target(f"{place}/t")
    assert isinstance(usual, RemoteTarget)
    assert (usual.read, usual.max_staleness_s) == ("leader", 10.0)


def test_a_node_of_a_cluster() -> None:
    found = parse_target("herd+zk://ada:x@zk1,[::1]:3/sales?tls_server_name=s&spin_us=0")
    assert isinstance(found, RemoteTarget)
    assert found.is_cluster
    assert found.where == "herd+zk://zk1:2181,[::1]:3/sales"
    node = found.at(Address("::2", 7001))
    assert not node.is_cluster
    assert node.where == "herd://[::2]:7001/sales"
    assert (node.user, node.password, node.tls_server_name) == ("ada", "x", "s")


@pytest.mark.parametrize("said", [None, False, True])
def test_what_zookeeper_says_of_a_node_takes_no_tls_away(said: bool | None) -> None:
    """Neither by what the node speaks, nor by where it is."""
    usual, demanded, forbidden = (
        parse_target(f"herd+zk://zk/t?{option}")
        for option in ("spin_us=0", "tls_authority=ca.pem", "tls=off")
    )
    assert isinstance(usual, RemoteTarget)
    assert isinstance(demanded, RemoteTarget)
    assert isinstance(forbidden, RemoteTarget)
    here, there = Address("127.0.0.1", 7000, said), Address("n1", 7000, said)
    assert usual.at(there).has_tls
    assert usual.at(here).has_tls is (said is True)
    for address in (here, there):
        assert demanded.at(address).has_tls
        assert not forbidden.at(address).has_tls
        assert forbidden.at(address).node_has_tls is said


def test_options_of_zookeeper() -> None:
    found = parse_target(
        "herd+zk://a,b/t?zookeeper_login=l&zookeeper_tls_certificate=c&zookeeper_tls_key=k"
    )
    assert isinstance(found, RemoteTarget)
    assert found.zookeeper == ZooKeeper("a:2181,b:2181", "l", True, "", "c", "k")
    assert found.tls is None
    usual = parse_target("herd+zk://a")
    assert isinstance(usual, RemoteTarget)
    assert usual.zookeeper == ZooKeeper("a:2181")


@pytest.mark.parametrize(
    "query",
    ["zookeeper_tls=off&zookeeper_tls_authority=a", "zookeeper_tls_key=k", "zookeeper_login="],
)
def test_options_of_zookeeper_that_make_no_sense(query: str) -> None:
    with pytest.raises(InterfaceError, match="zookeeper_"):
        parse_target(f"herd+zk://h/?{query}")


def test_options_of_zookeeper_are_of_its_urls() -> None:
    with pytest.raises(InterfaceError, match=r"'zookeeper_login' is of herd\+zk:// URLs"):
        parse_target("herd://a,b/t?zookeeper_login=l")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a:1", Address("a", 1)),
        ("[::1]:7000", Address("::1", 7000)),
        ("a", None),
        (":7000", None),
        ("a:b", None),
        ("", None),
    ],
)
def test_addresses(text: str, address: Address | None) -> None:
    assert address_of(text) == address
    if address is not None:
        assert str(address) == text
