"""Opens a directory, writes, checkpoints, and kills itself at the rename of one file.

Usage: killed_upgrade.py DIRECTORY NAME before|after. The public API only, and os.replace.
"""

import os
import signal
import sys
from typing import Any

import herdpy


def main(directory: str, name: str, moment: str) -> None:
    right: Any = os.replace

    def replace(source: Any, target: Any, **places: Any) -> None:
        is_it = os.path.basename(target) == name
        if is_it and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        right(source, target, **places)
        if is_it:
            os.kill(os.getpid(), signal.SIGKILL)

    with herdpy.connect(directory, autocommit=True) as connection:
        connection.execute("INSERT INTO heap VALUES (79, 'before the upgrade')")
        os.replace = replace
        connection.checkpoint()


if __name__ == "__main__":
    main(*sys.argv[1:])
