"""What makes a metadata store a cluster's: LAYOUT, INSTANCEID, and the nodes bookies register in.

The bytes are those of Apache BookKeeper (docs/formats/zookeeper.md).
"""

from typing import NamedTuple

from bookie.errors import (
    IllegalOperationError,
    MetadataStoreError,
    NodeExistsError,
    NoNodeError,
)
from bookie.metadata.interfaces import Create, VersionedStore
from bookie.metadata.ledger_paths import (
    AVAILABLE,
    INSTANCE_ID,
    LAYOUT,
    READ_ONLY,
    SPECIAL_NAMES,
    Layout,
    is_part,
)
from bookie.metadata.paths import join, parent_of
from bookie.metadata.patience import BROKEN, PATIENCE_S, Patience, ask
from bookie.runtime.interfaces import Rng

DEFAULT_ROOT = "/ledgers"
LAYOUT_VERSION = 2
MANAGER_VERSION = 1


class LayoutRecord(NamedTuple):
    """The content of LAYOUT."""

    layout: Layout
    manager_version: int = MANAGER_VERSION

    def to_bytes(self) -> bytes:
        """Return "2", a line feed, the factory's class, a colon, its version; no line feed."""
        return f"{LAYOUT_VERSION}\n{self.layout.value}:{self.manager_version}".encode()

    @staticmethod
    def from_bytes(data: bytes, path: str = LAYOUT) -> "LayoutRecord":
        """Read it, or raise MetadataStoreError saying what is not understood.

        Version 1 of the format names the manager by a short word instead of its class.
        """
        try:
            version_text, _, rest = data.decode("utf-8").strip().partition("\n")
            name, colon, manager_text = rest.strip().rpartition(":")
            version, manager_version = int(version_text), int(manager_text)
        except ValueError:
            raise MetadataStoreError(f"{path}: expected a layout, found {data!r}") from None
        names = {layout.value: layout for layout in Layout}
        if version == 1:
            names = {"flat": Layout.FLAT, "hierarchical": Layout.LEGACY_HIERARCHICAL}
        elif version != LAYOUT_VERSION:
            raise MetadataStoreError(
                f"{path}: expected layout version 1 or {LAYOUT_VERSION}, found {version}"
            )
        if not colon or name not in names:
            raise MetadataStoreError(
                f"{path}: expected one of {', '.join(sorted(names))}, found {name!r}"
            )
        if manager_version != MANAGER_VERSION:
            raise MetadataStoreError(
                f"{path}: expected manager version {MANAGER_VERSION}, found {manager_version}"
            )
        return LayoutRecord(names[name], manager_version)


def new_instance_id(rng: Rng) -> str:
    """Return a random UUID (version 4) as text."""
    raw = bytearray(rng.randbytes(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


async def initialize(
    store: VersionedStore,
    root: str = DEFAULT_ROOT,
    *,
    rng: Rng,
    layout: Layout = Layout.HIERARCHICAL,
) -> str:
    """Make a new cluster, all or nothing, and return its instance id.

    Errors: IllegalOperationError if there is a cluster at root already; MetadataStoreError.
    """
    instance_id = new_instance_id(rng)
    instance_path = join(root, INSTANCE_ID)
    patience = Patience(store, PATIENCE_S)
    was_lost = False
    while True:
        try:
            if await store.exists(instance_path) is not None:
                found, _ = await store.read(instance_path)
                if was_lost and found == instance_id.encode("ascii"):
                    return instance_id
                raise IllegalOperationError(
                    f"{root}: there is a cluster already, instance "
                    f"{found.decode('utf-8', 'replace')}; "
                    "nothing was changed"
                )
            parent = parent_of(root)
            if parent != "/":
                await _make(store, parent)
            await store.multi(
                [
                    *([] if await store.exists(root) is not None else [Create(root)]),
                    Create(join(root, AVAILABLE)),
                    Create(f"{join(root, AVAILABLE)}/{READ_ONLY}"),
                    Create(instance_path, instance_id.encode("ascii")),
                    Create(join(root, LAYOUT), LayoutRecord(layout).to_bytes()),
                ]
            )
            return instance_id
        except NodeExistsError as error:
            await ask(store, PATIENCE_S, lambda: store.sync(root))
            if await ask(store, PATIENCE_S, lambda: store.exists(instance_path)) is None:
                raise IllegalOperationError(
                    f"{error.path or root}: found without {instance_path}: this is no cluster and "
                    "no empty place; remove it, or name another root"
                ) from error
            was_lost = True  # another's, or ours: decide by content
        except NoNodeError as error:
            await patience.again(error)  # another client removes nodes meanwhile
        except BROKEN as error:
            was_lost = True
            await patience.again(error)


async def is_initialized(store: VersionedStore, root: str = DEFAULT_ROOT) -> bool:
    path = join(root, INSTANCE_ID)
    return await ask(store, PATIENCE_S, lambda: store.exists(path)) is not None


async def read_layout(
    store: VersionedStore, root: str = DEFAULT_ROOT, limit_s: float = PATIENCE_S
) -> Layout:
    """Return the cluster's layout; IllegalOperationError if there is no cluster at root."""
    path = join(root, LAYOUT)
    try:
        data, _ = await ask(store, limit_s, lambda: store.read(path))
    except NoNodeError:
        raise IllegalOperationError(
            f"{path}: expected a cluster's layout, found none; run `bookie format` first"
        ) from None
    return LayoutRecord.from_bytes(data, path).layout


async def read_instance_id(store: VersionedStore, root: str = DEFAULT_ROOT) -> str | None:
    """Return the cluster's instance id, or None when it has none (formatted by old tools)."""
    path = join(root, INSTANCE_ID)
    try:
        data, _ = await ask(store, PATIENCE_S, lambda: store.read(path))
    except NoNodeError:
        return None
    return data.decode("utf-8", "replace")  # as Apache's: whatever it is, no cookie has it


async def remove(store: VersionedStore, root: str, instance_id: str) -> None:
    """Remove a cluster and everything below its root; for ever.

    Errors: IllegalOperationError when the instance id is not that of the cluster, a name below root
    is none that a cluster has, or a bookie is registered (nothing was removed then).
    """
    await ask(store, PATIENCE_S, lambda: store.sync(root))
    found = await read_instance_id(store, root)
    if found != instance_id:
        raise IllegalOperationError(f"{root}: expected instance {instance_id}, found {found}")
    names = await ask(store, PATIENCE_S, lambda: store.children(root))
    foreign = [name for name in names if not _is_known(name)]
    if foreign:
        raise IllegalOperationError(
            f"{root}: found {', '.join(foreign)}, which no cluster has; nothing was removed"
        )
    registered = await _registered(store, root)
    if registered:
        # It would register in the next cluster, too, and has entries of other ledgers under the ids
        # that are given out there.
        raise IllegalOperationError(
            f"{root}: found {', '.join(registered)} registered, expected all bookies to be stopped "
            "(a killed one stays registered until its session has timed out); nothing was removed"
        )
    # INSTANCEID last: while it is there, an interrupted removal can be repeated.
    for name in sorted(names, key=lambda name: name == INSTANCE_ID):
        await _remove_tree(store, join(root, name))
    await _remove_tree(store, root)


def _is_known(name: str) -> bool:
    is_flat_ledger = name.startswith("L") and is_part(name[1:], 10)
    is_directory = is_part(name, 2) or is_part(name, 3)
    return name in SPECIAL_NAMES or name.startswith("ID-") or is_flat_ledger or is_directory


async def _registered(store: VersionedStore, root: str) -> list[str]:
    """Return the names of all registered bookies, sorted."""
    available = join(root, AVAILABLE)
    found: list[str] = []
    for path in (available, join(available, READ_ONLY)):
        try:
            found += await ask(store, PATIENCE_S, lambda path=path: store.children(path))
        except NoNodeError:
            pass  # of a removal that was interrupted
    return sorted(set(found) - {READ_ONLY})


async def _make(store: VersionedStore, path: str) -> None:
    try:
        await store.create(path, make_parents=True)
    except NodeExistsError:
        pass


async def _remove_tree(store: VersionedStore, path: str) -> None:
    try:
        for name in await ask(store, PATIENCE_S, lambda: store.children(path)):
            await _remove_tree(store, join(path, name))
        await ask(store, PATIENCE_S, lambda: store.delete(path))
    except NoNodeError:
        pass
