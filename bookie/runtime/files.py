"""Small files that are replaced as a whole, durably."""

from bookie.runtime.interfaces import BytesLike, Disk
from bookie.runtime.paths import parent_of


def replace_file(disk: Disk, path: str, data: BytesLike) -> None:
    """Let a file have this content, durable on return; a crash leaves the old or the new one."""
    temporary = f"{path}.new"
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at(0, data)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(parent_of(path))
