"""Where the planner's processes note the leases they took, for herdpy.spark.release().

They are children of Spark's JVM, which is a child of the program that called
herdpy.spark.session(): that sets the environment variable FOLDER to a folder of its own, and here
each lease becomes an empty file of its name. Without the variable nothing is noted.
"""

import os
from pathlib import Path

FOLDER = "HERDPY_SPARK_LEASES"


def note(lease: str) -> None:
    """Remember a lease; where that fails, it ends by its seconds, as all do."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return
    try:
        Path(folder, lease).touch()
    except OSError:
        return


def noted() -> list[str]:
    """Return the leases of this program that release() has not seen."""
    folder = os.environ.get(FOLDER)
    if folder is None or not Path(folder).is_dir():
        return []
    return sorted(path.name for path in Path(folder).iterdir())


def forget(lease: str) -> None:
    """Drop a note; nothing to do when it is gone."""
    folder = os.environ.get(FOLDER)
    if folder is not None:
        Path(folder, lease).unlink(missing_ok=True)
