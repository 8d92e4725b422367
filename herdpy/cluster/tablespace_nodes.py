"""The nodes of a cluster's tablespaces in the metadata store: names, records, beginnings, ends.

    <root>/tableSpaces/<name>   which tablespace has the name, who leads it, under which epoch
    <root>/secrets/<id>         the password of its ledgers
    <root>/ledgers/<id>         its LedgersInfo (listing.py)
    <root>/leaders/<id>         ephemeral, of the node that serves as its leader
    <root>/replicas/<id>        a folder for what each replica says of itself
    <root>/wishes/<id>          ephemeral: which node is wanted as leader (wish.py)

A tablespace begins and ends by one multi() each: no node of it is there alone. Changes are
compare-and-set; a lost answer is decided by the content (docs/formats/tablespace_nodes.md). In a
cluster that is secured in ZooKeeper drivers may read where leaders are, and nothing else
(readable(), ADR 82). One asyncio loop; calls may run beside each other.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec

from bookie.errors import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError
from bookie.metadata.acl import Identity, Readable
from bookie.metadata.interfaces import (
    Check,
    Create,
    Delete,
    Operation,
    VersionedStore,
    Write,
)
from bookie.metadata.patience import BROKEN, PATIENCE_S, Patience, ask
from herdpy.cluster.json_nodes import read_node
from herdpy.cluster.ledgers_info import LedgersInfo
from herdpy.errors import Error, OperationalError, ProgrammingError
from herdpy.model.lsn import Lsn

Question = Callable[[], Awaitable[bool]]
FORMAT = 2
"""Of the record; in format 1 it had the password of the ledgers."""
SECRET_FORMAT = 1
_FOR_DRIVERS = ("tableSpaces", "leaders", "nodes")
_FOLDERS = (*_FOR_DRIVERS, "ledgers", "replicas", "secrets", "wishes")


def readable(root: str, readers: tuple[Identity, ...]) -> Readable:
    """Return what drivers read of a cluster: which node leads, where nodes are. No secret."""
    return Readable(readers, tuple(f"{root}/{folder}" for folder in _FOR_DRIVERS))


class HandedOver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a leader has left behind that ended in order; it stays until the next one does."""

    epoch: int
    """Under which it led."""
    to: str
    """The id of the node that it was handed to; any other one may lead when that does not."""
    position: str
    """Of the last record of its log, whose ledgers are all CLOSED: every later leader has it."""

    @property
    def lsn(self) -> Lsn:
        return Lsn.of_text(self.position)

    def __post_init__(self) -> None:
        """ValueError, of which msgspec makes one of its own: this is no position."""
        Lsn.of_text(self.position)


class TablespaceRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the store says of a tablespace; each take-over has a greater epoch."""

    format: int = FORMAT
    id: str
    """32 hexadecimal digits of chance, which no other tablespace ever has."""
    leader: str
    """The id of the node that leads it, or is about to."""
    epoch: int = 1
    replicas: tuple[str, ...]
    """The ids of the nodes that have a copy, the leader's among them."""
    expected: int = 1
    """How many copies there should be."""
    handed_over: HandedOver | msgspec.UnsetType = msgspec.UNSET
    """The last hand-over; unset: there was none."""

    @property
    def successor(self) -> str | None:
        """The node that the leader named above has handed the part to; None: it has not."""
        found = self.handed_over
        if found is msgspec.UNSET or found.epoch != self.epoch:
            return None
        return found.to

    @property
    def log_end(self) -> Lsn | None:
        """Up to where the log goes at least, as a hand-over has said; None: none has."""
        found = self.handed_over
        return None if found is msgspec.UNSET else found.lsn

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)

    @staticmethod
    def of_bytes(data: bytes, path: str) -> "TablespaceRecord":
        """Read a node; CorruptionError: it is malformed, OperationalError: of a newer herdpy."""
        return read_node(data, path, TablespaceRecord, FORMAT, "a tablespace", oldest=FORMAT)


class SecretRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What only nodes may read of a tablespace; made with it, and never changed."""

    format: int = SECRET_FORMAT
    password: str = ""
    """Of its ledgers, in hexadecimal digits."""

    def __post_init__(self) -> None:
        """ValueError, of which msgspec makes one of its own: these are no such digits."""
        bytes.fromhex(self.password)


class Versioned(NamedTuple):
    record: TablespaceRecord
    version: int


class TablespaceNodes:
    """See the module. Any node of the cluster."""

    def __init__(
        self, store: VersionedStore, root: str = "/herd", *, patience_s: float = PATIENCE_S
    ) -> None:
        self._store = store
        self._root = root
        self._patience_s = patience_s

    # --- paths -----------------------------------------------------------------------------------

    def path(self, name: str) -> str:
        quoted = quote(name, safe="")
        if not quoted.strip("."):  # "" is no name; "." and ".." are no node's
            quoted = quoted.replace(".", "%2E")
        return f"{self._root}/tableSpaces/{quoted}"

    def ledgers_path(self, tablespace_id: str) -> str:
        return f"{self._root}/ledgers/{tablespace_id}"

    @property
    def secrets_path(self) -> str:
        return f"{self._root}/secrets"

    def secret_path(self, tablespace_id: str) -> str:
        return f"{self.secrets_path}/{tablespace_id}"

    def leader_path(self, tablespace_id: str) -> str:
        return f"{self._root}/leaders/{tablespace_id}"

    def replicas_path(self, tablespace_id: str) -> str:
        return f"{self._root}/replicas/{tablespace_id}"

    def replica_path(self, tablespace_id: str, node_id: str) -> str:
        return f"{self.replicas_path(tablespace_id)}/{node_id}"

    @property
    def nodes_path(self) -> str:
        return f"{self._root}/nodes"

    def wish_path(self, tablespace_id: str) -> str:
        return f"{self._root}/wishes/{tablespace_id}"

    def node_path(self, node_id: str) -> str:
        return f"{self.nodes_path}/{node_id}"

    # --- the cluster -----------------------------------------------------------------------------

    async def initialize(self) -> None:
        """Make the folders of a new cluster; those that are there stay as they are."""
        for folder in _FOLDERS:
            patience = Patience(self._store, self._patience_s)
            while True:
                try:
                    await self._store.create(f"{self._root}/{folder}", make_parents=True)
                except NodeExistsError:
                    break
                except BROKEN as error:
                    await patience.again(error)
                else:
                    break

    async def names(self) -> list[str]:
        """Return the names of all tablespaces, in order; OperationalError 58P01: no cluster."""
        path = f"{self._root}/tableSpaces"

        async def question() -> list[str]:
            await self._store.sync(path)
            return await self._store.children(path)

        try:
            found = await ask(self._store, self._patience_s, question)
        except NoNodeError:
            raise self._no_cluster(path) from None
        return sorted(map(unquote, found))

    async def read(self, name: str) -> Versioned:
        """Return what is said of a tablespace now; ProgrammingError 3D000: there is none."""
        path = self.path(name)

        async def question() -> Versioned:
            await self._store.sync(path)
            data, stat = await self._store.read(path)
            return Versioned(TablespaceRecord.of_bytes(data, path), stat.version)

        try:
            return await ask(self._store, self._patience_s, question)
        except NoNodeError:
            raise no_tablespace(name) from None

    async def password(self, tablespace_id: str) -> bytes:
        """Return the password of its ledgers; OperationalError 58P01: the store has none."""
        path = self.secret_path(tablespace_id)

        async def question() -> bytes:
            await self._store.sync(path)
            return (await self._store.read(path))[0]

        try:
            data = await ask(self._store, self._patience_s, question)
        except NoNodeError:
            raise OperationalError(
                f"{path}: expected the password of a tablespace's ledgers, found none",
                sqlstate="58P01",
                hint="the tablespace was dropped, or the node deleted by a tool; nothing was "
                "changed",
            ) from None
        record = read_node(data, path, SecretRecord, SECRET_FORMAT, "a password of ledgers")
        return bytes.fromhex(record.password)

    # --- tablespaces -----------------------------------------------------------------------------

    async def create(self, name: str, record: TablespaceRecord, password: bytes = b"") -> None:
        """Make a tablespace with an empty log, led by this session's node.

        password: of its ledgers. ProgrammingError 42P04: there is one of the name;
        OperationalError 58P01: no cluster.
        """
        tablespace_id, leader = record.id, record.leader.encode()
        secret = SecretRecord(password=password.hex())
        operations = (
            Create(self.path(name), record.to_bytes()),
            Create(self.secret_path(tablespace_id), msgspec.json.encode(secret)),
            Create(self.ledgers_path(tablespace_id), LedgersInfo(epoch=record.epoch).to_bytes()),
            Create(self.replicas_path(tablespace_id)),
            Create(self.leader_path(tablespace_id), leader, is_ephemeral=True),
        )
        try:
            await self._do(operations, lambda: self._is_there(name, record))
        except NodeExistsError:
            raise ProgrammingError(
                f'tablespace "{name}" already exists', sqlstate="42P04"
            ) from None
        except NoNodeError as error:
            raise self._no_cluster(error.path) from None

    async def take_over(self, name: str, found: Versioned, leader: str) -> Versioned | None:
        """Name a leader under the next epoch; None: what was found is not the newest any more."""
        epoch, version = found.record.epoch + 1, found.version
        record = msgspec.structs.replace(found.record, leader=leader, epoch=epoch)
        path, data = self.path(name), record.to_bytes()
        patience = Patience(self._store, self._patience_s)
        is_lost = False
        while True:
            try:
                stat = await self._store.write(path, data, version)
            except BadVersionError:
                # No other node writes this one's id: the same content is its own.
                now = await self.read(name)
                return now if is_lost and now.record == record else None
            except NoNodeError:
                raise no_tablespace(name) from None
            except BROKEN as error:
                is_lost = True
                await patience.again(error)
            else:
                return Versioned(record, stat.version)

    async def hand_over(self, name: str, found: Versioned, handed_over: HandedOver) -> bool:
        """Say where the log of this epoch ends, and let the leader's node be gone, at once.

        Only by the leader that the record names, whose node it is, when it writes and answers no
        more. False: what was found is not the newest any more, or there is no leader's node.
        """
        record = msgspec.structs.replace(found.record, handed_over=handed_over)
        operations = (
            Write(self.path(name), record.to_bytes(), found.version),
            Delete(self.leader_path(record.id)),
        )

        async def is_handed_over() -> bool:
            return (await self.read(name)).record == record

        try:
            await self._do(operations, is_handed_over)
        except (BadVersionError, NoNodeError):
            return False
        return True

    async def depose(self, name: str, named: Versioned) -> bool:
        """Let the leader's node be gone, whichever session's it is; True: it is, for that reason.

        named: the record as the caller has named itself in it: while it is the newest no other node
        makes the leader's node. False: it is not, or there was none. Only behind a wait of longer
        than sessions last: the node of a leader that resigns, or is gone, goes by itself.
        """
        path = self.leader_path(named.record.id)
        operations = (Check(self.path(name), named.version), Delete(path))

        async def is_gone() -> bool:
            await self._store.sync(path)
            return await self._store.exists(path) is None

        try:
            await self._do(operations, is_gone)
        except (BadVersionError, NoNodeError):
            return False
        return True

    async def drop(self, name: str, found: Versioned) -> tuple[int, ...] | None:
        """End a tablespace, and return the ledgers that are its; the caller deletes them.

        None: it, its list or its replicas have changed since: read again. Only its leader calls.
        """
        tablespace_id = found.record.id
        ledgers_path, replicas_path = (
            self.ledgers_path(tablespace_id),
            self.replicas_path(tablespace_id),
        )

        async def question() -> tuple[bytes, int, list[str], bool]:
            await self._store.sync(ledgers_path)
            data, stat = await self._store.read(ledgers_path)
            replicas = await self._store.children(replicas_path)
            has_leader = await self._store.exists(self.leader_path(tablespace_id)) is not None
            return data, stat.version, replicas, has_leader

        try:
            data, version, replicas, has_leader = await ask(self._store, self._patience_s, question)
        except NoNodeError:
            return None
        ledgers = LedgersInfo.of_bytes(data, ledgers_path).ledgers
        operations: list[Operation] = [
            Delete(self.path(name), found.version),
            Delete(self.secret_path(tablespace_id)),
            Delete(ledgers_path, version),
            *(Delete(f"{replicas_path}/{each}") for each in replicas),
            Delete(replicas_path),
        ]
        if has_leader:
            operations.append(Delete(self.leader_path(tablespace_id)))

        async def is_gone() -> bool:
            await self._store.sync(ledgers_path)
            return await self._store.exists(ledgers_path) is None

        try:
            await self._do(operations, is_gone)
        except (BadVersionError, NoNodeError, NotEmptyError):
            return None
        return ledgers

    # --- all or nothing --------------------------------------------------------------------------

    async def _do(self, operations: Sequence[Operation], is_done: Question) -> None:
        """Do all or none; is_done() tells, behind a lost answer, whether this very call did."""
        patience = Patience(self._store, self._patience_s)
        is_lost = False
        while True:
            try:
                await self._store.multi(operations)
                return
            except BROKEN as error:
                is_lost = True
                await patience.again(error)
            except (NodeExistsError, BadVersionError, NoNodeError, NotEmptyError):
                if is_lost and await ask(self._store, self._patience_s, is_done):
                    return
                raise

    async def _is_there(self, name: str, record: TablespaceRecord) -> bool:
        try:
            return (await self.read(name)).record == record
        except ProgrammingError:
            return False

    def _no_cluster(self, path: str) -> Error:
        return OperationalError(
            f"{path}: expected a folder of a herdpy cluster, found none",
            sqlstate="58P01",
            hint=f"look whether {self._root} is the cluster's root; nothing was changed",
        )


def no_tablespace(name: str) -> Error:
    """Return the error of a name that no tablespace has (3D000)."""
    return ProgrammingError(f'tablespace "{name}" does not exist', sqlstate="3D000")
