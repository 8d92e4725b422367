"""The faults that damaged directories have to find (tests/fixtures/plants.py)."""

from typing import Any

from herdpy.engine.maintenance import file_logs, recovery, replica
from herdpy.log import file_replay, frame
from herdpy.storage import segment
from tests.fixtures.plants import Plant


def _of_any_place(right: Any) -> Any:
    """Pages and bitmaps are sealed, and believed, wherever they stand."""
    return lambda file_id, offset: b""


def _of_any_segment(right: Any) -> Any:
    """Only the offset places a page or bitmap; in which file it is, is not looked at."""
    return lambda file_id, offset: right(bytes(16), offset)


def _at_any_offset(right: Any) -> Any:
    """The checksum of a log frame says nothing of its offset."""
    return lambda version, log_id, file_id, offset: right(version, log_id, file_id, 0)


def _nothing(right: Any) -> Any:
    return lambda *_, **__: None


def _folders_first(right: Any) -> Any:
    def open_(self: replica.Replica, **given: Any) -> None:
        replica.make_folders(self._disk)
        right(self, **given)

    return open_


PLANTS: dict[str, Plant] = {
    "id and offset of a page unchecked": Plant(segment, "_seed_of", _of_any_place),
    "id of a page unchecked": Plant(segment, "_seed_of", _of_any_segment),
    "offset of a frame unchecked": Plant(frame, "_identity", _at_any_offset),
    "older manifest believed": Plant(file_logs, "find_unlisted_frame", _nothing),
    "log file of another database believed": Plant(file_replay, "owner_of", _nothing),
    "manifest of a new database believed": Plant(recovery, "check_leftovers", _nothing),
    "folders made before anything is read": Plant(replica.Replica, "open", _folders_first),
}
