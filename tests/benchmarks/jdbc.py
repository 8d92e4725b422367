"""PostgreSQL's JDBC driver for Spark: fetched by Maven, by its coordinates, once for a checkout."""

import shutil
import subprocess
from pathlib import Path

COORDINATES = "org.postgresql:postgresql:42.7.4"
DRIVER = "org.postgresql.Driver"
FOLDER = Path("build/jdbc")
_LIMIT_S = 300


class NoJdbcError(Exception):
    """It cannot be had here; the text says why."""


def jdbc_jar() -> Path:
    """Return the path of the driver's jar; NoJdbcError."""
    _, name, version = COORDINATES.split(":")
    jar = (FOLDER / f"{name}-{version}.jar").resolve()
    if jar.exists():
        return jar
    if shutil.which("mvn") is None:
        raise NoJdbcError(
            "PostgreSQL's JDBC driver is fetched by mvn, which is not on PATH; "
            "on Debian: apt-get install maven"
        )
    goal = ["dependency:copy", f"-Dartifact={COORDINATES}", f"-DoutputDirectory={jar.parent}"]
    ran = subprocess.run(
        ["mvn", "-q", "-B", *goal], capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    if ran.returncode or not jar.exists():
        lines = [line for line in ran.stdout.splitlines() if "[ERROR]" in line]
        raise NoJdbcError((lines or ["mvn dependency:copy failed"])[0][:300])
    return jar


def jdbc_url(conninfo: str) -> str:
    """Return libpq's conninfo as JDBC's URL."""
    parts = dict(part.split("=", 1) for part in conninfo.split())
    where = f"{parts['host']}:{parts['port']}/{parts['dbname']}"
    return f"jdbc:postgresql://{where}?user={parts['user']}"
