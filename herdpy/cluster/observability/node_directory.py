"""The doctor of a node's directory: whose it is, and whether each copy in it is whole.

    node.json                which node of which cluster (node_identity.py)
    <id of a tablespace>/    a copy: pages and a manifest; its log is in ledgers, elsewhere
    temp/                    where DuckDB spills

Nothing is changed. The caller sees to it that no node runs there.
"""

import re
from collections.abc import Callable

import msgspec

from bookie.runtime.interfaces import Disk
from herdpy.cluster.node_identity import FILE, LOCK, TEMP, stored_identity
from herdpy.engine.maintenance.doctor import Report, examine
from herdpy.errors import Error
from herdpy.storage.backup_file import Progress

_FOLDER = re.compile(r"[0-9a-f]{32}")
_COUNTS = (
    "segment_count",
    "byte_count",
    "table_count",
    "page_count",
    "row_count",
    "log_record_count",
    "log_byte_count",
)


def examine_node(
    disk: Disk, open_folder: Callable[[str], Disk], where: str, progress: Progress | None = None
) -> Report:
    """Verify a node's directory; damage is in the report and not raised.

    OSError: something could not be read at all.
    """
    report = Report(node="a node that cannot be told")
    try:
        identity = stored_identity(disk, where)
        report.node = f"node {identity.id} of cluster {identity.cluster}"
    except Error as error:
        _note(report, error)
    for name in disk.list(""):
        if _FOLDER.fullmatch(name):
            _add(report, name, open_folder(name), f"{where}/{name}", progress)
        elif name not in (FILE, LOCK, TEMP, f"{FILE}.new"):
            report.notes.append(f"{name} is no file of a node")
    return report


def _note(report: Report, error: Error) -> None:
    report.damages.append(error.message)
    if error.hint and error.hint not in report.advice:
        report.advice.append(error.hint)


def _add(report: Report, name: str, disk: Disk, where: str, progress: Progress | None) -> None:
    if not set(disk.list("")) - {LOCK}:
        report.notes.append(f"{name}/ is empty: the node fills it from the log")
        return
    found = examine(disk, where, progress)
    report.damages += [f"{name}: {each}" for each in found.damages]
    report.notes += [f"{name}: {each}" for each in found.notes]
    report.advice += [each for each in found.advice if each not in report.advice]
    for each in found.tablespaces:
        folder = f"{name}/{each.folder}"
        if each.needs_log_from is None and each.table_count is not None:
            report.damages.append(f"{folder}: expected a copy of a cluster's tablespace, found a "
                                  "database of its own")  # fmt: skip
        report.tablespaces.append(msgspec.structs.replace(each, name=name, folder=folder))
    for count in _COUNTS:
        setattr(report, count, getattr(report, count) + getattr(found, count))
