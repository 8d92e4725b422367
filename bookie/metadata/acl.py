"""What ZooKeeper lets whom do with a node: entries, and the two lists that a cluster has.

A cluster is open (every node world:anyone:cdrwa) or secured: every node gives all rights to the
identities of the session that made it, as Apache BookKeeper does with zkEnableSecurity
(CREATOR_ALL_ACL), and none to others. A layout that has no secrets in some of its nodes may let
others read those (Readable). Pure data; docs/formats/zookeeper.md.
"""

import hashlib
from collections.abc import Iterable
from enum import IntFlag
from typing import NamedTuple


class Permission(IntFlag):
    """ZooKeeper's numbers."""

    READ = 1
    """Read the data, list the children."""
    WRITE = 2
    CREATE = 4
    """Of children."""
    DELETE = 8
    """Of children."""
    ADMIN = 16
    """Change the ACL."""
    ALL = 31


_LETTERS = (
    (Permission.CREATE, "c"),
    (Permission.DELETE, "d"),
    (Permission.READ, "r"),
    (Permission.WRITE, "w"),
    (Permission.ADMIN, "a"),
)


class Identity(NamedTuple):
    """Who a session has proved to be: by scheme `digest` or `sasl`."""

    scheme: str
    id: str

    def label(self) -> str:
        """Return what may be told to all: the user, and enough to tell two passwords apart.

        A digest's id is an unsalted hash of the password. Two bytes are told, of a hash that takes
        16 MiB and some 50 ms: no help for who guesses passwords by the million.
        """
        user = self.id.partition(":")[0] if self.scheme == "digest" else self.id
        name = f"{self.scheme}:{user}"
        mark = hashlib.scrypt(self.id.encode(), salt=name.encode(), n=2**14, r=8, p=1, dklen=2)
        return f"{name}#{mark.hex()}"


class AclEntry(NamedTuple):
    """Rights of one identity."""

    scheme: str
    id: str
    permissions: int = int(Permission.ALL)

    def __str__(self) -> str:
        """Return it as ZooKeeper's shell does, but never the hash of a password."""
        shown = self.id
        if self.scheme == "digest":
            shown = f"{self.id.partition(':')[0]}:…"
        letters = "".join(text for bit, text in _LETTERS if self.permissions & bit)
        return f"{self.scheme}:{shown}:{letters}"


Acl = tuple[AclEntry, ...]
"""Sorted, each entry once."""
OPEN: Acl = (AclEntry("world", "anyone"),)


def acl_of(entries: Iterable[AclEntry]) -> Acl:
    """Return the entries in one order, so that equal ACLs are equal."""
    return tuple(sorted(set(entries)))


def acl_for(identities: Iterable[Identity]) -> Acl:
    """Return all rights for these identities.

    They are named: what ZooKeeper makes of `auth` has a session's certificate among its identities.
    """
    return acl_of(AclEntry(scheme, name) for scheme, name in identities)


def may_read(identities: Iterable[Identity]) -> Acl:
    """Return the right of these identities to read data and list children."""
    return acl_of(AclEntry(scheme, name, int(Permission.READ)) for scheme, name in identities)


def acl_text(acl: Acl) -> str:
    return ", ".join(map(str, acl)) or "none"


ANYONE = Identity("world", "anyone")


class Readable(NamedTuple):
    """Nodes of a secured cluster that others may read, too."""

    readers: tuple[Identity, ...] = ()
    tops: tuple[str, ...] = ()
    """Paths: these nodes, and all below them."""

    def covers(self, path: str) -> bool:
        return any(path == top or path.startswith(f"{top}/") for top in self.tops)


class StoreAccess(NamedTuple):
    """Who a store's sessions are, and what the nodes that they make are."""

    identities: tuple[Identity, ...] = ()
    """None: the sessions do not log in."""
    is_secured: bool = False
    """New nodes are for these identities; else open."""
    readable: Readable = Readable()

    def secured_acl(self, path: str) -> Acl:
        """Return what a node has in a cluster that is secured for these identities."""
        own = acl_for(self.identities)
        return (
            acl_of([*own, *may_read(self.readable.readers)]) if self.readable.covers(path) else own
        )

    def acl_of_new(self, path: str) -> Acl:
        """Return what a node is made with."""
        return self.secured_acl(path) if self.is_secured else OPEN
