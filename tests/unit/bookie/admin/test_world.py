"""Options that commands share: where the cluster is, settings by name."""

import click
import pytest

from bookie.admin.serve import setting_of
from bookie.admin.world import Cluster
from bookie.config import BookieConfig


@pytest.mark.parametrize(
    ("text", "root", "expected"),
    [
        ("h1:2181,h2:2181", None, Cluster("h1:2181,h2:2181", "/ledgers")),
        ("h1:2181", "/a/b", Cluster("h1:2181", "/a/b")),
        ("zk+null://h1:2181;h2:2181/l", None, Cluster("h1:2181,h2:2181", "/l")),
        ("zk+hierarchical://h1:2181/l/", None, Cluster("h1:2181", "/l")),
        ("zk://h1:2181/l", "/other", Cluster("h1:2181", "/other")),
        ("zk://h1:2181", None, Cluster("h1:2181", "/ledgers")),
    ],
)
def test_hosts_or_apaches_uri(text: str, root: str | None, expected: Cluster) -> None:
    assert Cluster.of(text, root) == expected


@pytest.mark.parametrize("text", ["etcd://h/l", "zk:///l", "zk://[::1/l"])
def test_another_uri_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"expected hosts or zk\+hierarchical") as caught:
        Cluster.of(text, None)
    assert caught.value.message.endswith(f"found {text!r}")


def test_the_uri_is_apaches() -> None:
    assert Cluster("h1:1,h2:2", "/l").uri == "zk+null://h1:1;h2:2/l"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gc_interval_s=1.5", ("gc_interval_s", 1.5)),
        ("journal_bytes_max=1048576", ("journal_bytes_max", 1048576)),
        ("is_journal_synced=False", ("is_journal_synced", False)),
    ],
)
def test_a_setting_has_the_type_of_its_field(text: str, expected: tuple[str, object]) -> None:
    assert setting_of(text, BookieConfig) == expected


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gc_interval_s=soon", "gc_interval_s: expected float, found 'soon'"),
        ("is_journal_synced=2", "expected bool"),
        ("gc_interval=1", "found 'gc_interval=1'; names are .*gc_interval_s"),
        ("gc_interval_s", "NAME=VALUE"),
        ("port=1", "NAME=VALUE"),
    ],
)
def test_a_wrong_setting_is_explained(text: str, found: str) -> None:
    with pytest.raises(click.BadParameter, match=found):
        setting_of(text, BookieConfig)


@pytest.mark.parametrize(
    "hosts", ["", "h1:port", "h1:0", "h1:99999", "h1:2181,", "h1:2181/chroot", "h 1"]
)
def test_hosts_that_are_none_are_refused(hosts: str) -> None:
    with pytest.raises(click.BadParameter, match="expected host:port"):
        Cluster.of(hosts, None)


@pytest.mark.parametrize("root", ["ledgers", "/", "/a//b", "/a b"])
def test_a_root_that_is_no_path_is_refused(root: str) -> None:
    with pytest.raises(click.BadParameter, match="expected a path like /ledgers"):
        Cluster.of("h1:2181", root)
