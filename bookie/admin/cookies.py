"""`bookie cookie …`: look at and mend the cookies that bind bookies to their directories."""

from collections.abc import Sequence
from pathlib import Path

import click

from bookie.admin.directories import absolute_ledgers, directory_options
from bookie.admin.ids import BOOKIE_ID, LEDGER_ID, distinct
from bookie.admin.output import Output, confirm
from bookie.admin.world import Cluster, cluster_options
from bookie.config import parse_ledger_directory
from bookie.errors import IllegalOperationError
from bookie.ledger.types import BookieId
from bookie.lifecycle.operations import Operations
from bookie.metadata.cookies import Cookie, CookieStore, no_such_bookie
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_executors import run
from bookie.runtime.os_rng import OsRng
from bookie.server.identity import cookie_of

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def cookie() -> None:
    """Look at and mend the cookies that bind bookies to their directories.

    A cookie names a bookie's id, directories and cluster; it lies in each directory and in the
    metadata store, and a bookie starts only where all of them agree.

    A bookie whose disk was wiped has lost its cookie and does not start: it would deny entries
    that it acknowledged. Delete its cookie only after its ledgers were copied to other bookies.
    """


def _record(found: Cookie, version: int | None) -> dict[str, object]:
    return {
        "bookie_id": found.bookie_id,
        "journal_directories": list(found.journal_directories),
        "ledger_directories": list(found.ledger_directories),
        "index_directories": list(found.index_directories),
        "instance_id": found.instance_id,
        "version": version,
    }


@cookie.command()
@click.argument("bookie_id", type=BOOKIE_ID)
@cluster_options
def get(cluster: Cluster, output: Output, bookie_id: BookieId) -> None:
    """Show the cookie of a bookie as the metadata store has it."""
    found, version = run(_get(cluster, bookie_id))
    output.record(_record(found, version))


async def _get(cluster: Cluster, bookie_id: BookieId) -> tuple[Cookie, int]:
    async with cluster.existing() as store:
        return await _expect(CookieStore(store, cluster.root), bookie_id)


async def _expect(cookies: CookieStore, bookie_id: BookieId) -> tuple[Cookie, int]:
    found = await cookies.read(bookie_id)
    if found is None:
        raise no_such_bookie(bookie_id, await cookies.bookie_ids())
    return found


@cookie.command()
@click.argument("bookie_id", type=BOOKIE_ID)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("bookie-data"),
    show_default=True,
    help="The bookie's directory, as `bookie serve` is given it.",
)
@directory_options
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write it into this file, too."
)
@cluster_options
def generate(
    cluster: Cluster,
    output: Output,
    bookie_id: BookieId,
    data: Path,
    journal: Path | None,
    ledgers: tuple[str, ...],
    out: Path | None,
) -> None:
    """Show the cookie that a bookie of this id and directory must have; store nothing."""
    root = str(data.resolve())
    journal_root = root if journal is None else str(journal.resolve())
    roots = [parse_ledger_directory(text)[0] for text in absolute_ledgers(ledgers)] or [root]
    made = run(_generate(cluster, bookie_id, journal_root, roots))
    if out is not None:
        out.write_bytes(made.to_bytes())
    output.record(_record(made, None))


async def _generate(
    cluster: Cluster, bookie_id: BookieId, journal: str, ledgers: Sequence[str]
) -> Cookie:
    async with cluster.existing() as store:
        instance_id = await CookieStore(store, cluster.root).instance_id()
        return cookie_of(bookie_id, journal, ledgers, instance_id)


@cookie.command()
@click.argument("bookie_id", type=BOOKIE_ID)
@click.argument("file", type=_FILE)
@cluster_options
def create(cluster: Cluster, output: Output, bookie_id: BookieId, file: Path) -> None:
    """Store the cookie in FILE for a bookie that has none."""
    run(_store(cluster, bookie_id, _read(file, bookie_id), is_new=True))
    output.record({"created": bookie_id}, f"created the cookie of {bookie_id}")


@cookie.command()
@click.argument("bookie_id", type=BOOKIE_ID)
@click.argument("file", type=_FILE)
@cluster_options
def update(cluster: Cluster, output: Output, bookie_id: BookieId, file: Path) -> None:
    """Replace the cookie of a bookie by the one in FILE."""
    run(_store(cluster, bookie_id, _read(file, bookie_id), is_new=False))
    output.record({"updated": bookie_id}, f"updated the cookie of {bookie_id}")


def _read(file: Path, bookie_id: BookieId) -> Cookie:
    found = Cookie.from_bytes(file.read_bytes(), str(file))
    if found.bookie_id != bookie_id:
        raise IllegalOperationError(
            f"{file}: expected the cookie of {bookie_id}, found that of {found.bookie_id}"
        )
    return found


async def _store(cluster: Cluster, bookie_id: BookieId, new: Cookie, *, is_new: bool) -> None:
    async with cluster.existing() as store:
        cookies = CookieStore(store, cluster.root)
        if is_new and await cookies.read(bookie_id) is not None:
            raise IllegalOperationError(
                f"bookie {bookie_id}: expected no cookie in the metadata store, found one; "
                "`bookie cookie update` replaces it"
            )
        version = None if is_new else (await _expect(cookies, bookie_id))[1]
        await cookies.write(bookie_id, new, version)


@cookie.command()
@click.argument("bookie_id", type=BOOKIE_ID)
@click.option(
    "--accept-loss", "accepted", type=LEDGER_ID, multiple=True, callback=distinct,
    metavar="LEDGER",
    help="Go on though this ledger names the bookie; may be repeated.",
)  # fmt: skip
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@cluster_options
def delete(
    cluster: Cluster,
    output: Output,
    bookie_id: BookieId,
    accepted: tuple[int, ...],
    *,
    is_sure: bool,
) -> None:
    """Forget a stopped bookie: it can come back only as a new, empty one.

    Refused while a ledger names the bookie, unless each of them is given with --accept-loss.
    """
    confirm(f"Forget bookie {bookie_id}?", is_sure=is_sure)
    run(_delete(cluster, bookie_id, accepted))
    output.record({"deleted": bookie_id}, f"deleted the cookie of {bookie_id}")


async def _delete(cluster: Cluster, bookie_id: BookieId, accepted: tuple[int, ...]) -> None:
    async with cluster.existing() as store:
        cookies = CookieStore(store, cluster.root)
        _, version = await _expect(cookies, bookie_id)
        asked = Operations(store, cluster.root, OsRng(), OsClock())
        await asked.expect_forgettable(bookie_id)
        await asked.expect_given_up(bookie_id, accepted)
        await cookies.delete(bookie_id, version)
