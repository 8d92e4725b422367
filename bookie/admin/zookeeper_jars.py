"""The jars of a real ZooKeeper: from Maven, from Debian's package, or from pyspark (ADR 0062).

fetch() lets Maven fetch them, once, for this user: those named here and no others, each of which
has to have the checksum beside its name. `python -m bookie.admin.zookeeper_jars` does that.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from bookie.errors import BookieStartError
from bookie.extras import install_command

VERSION = "3.9.5"
PINNED: dict[str, str] = {
    "org.apache.zookeeper:zookeeper:3.9.5":
        "936d025db1a85f085edea25048c3f5b3de5fc29329c371a10925e3b78b0b38a0",
    "org.apache.zookeeper:zookeeper-jute:3.9.5":
        "abcbc7f9d6c493daa118da6fa3061a201e2c521217526e8535adfb56b629e52a",
    "org.apache.yetus:audience-annotations:0.12.0":
        "ffb101fc066360ff3c77457c927fd7967fb096a6ee9e046ab7071447d8208efc",
    "org.slf4j:slf4j-api:2.0.17":
        "7b751d952061954d5abfed7181c1f645d336091b679891591d63329c622eb832",
    "org.slf4j:slf4j-simple:2.0.17":
        "ddfea59ac074c6d3e24ac2c38622d2d963895e17f70b38ed4bdae4d780be6964",
    "io.dropwizard.metrics:metrics-core:4.1.12.1":
        "cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9",
    "org.xerial.snappy:snappy-java:1.1.10.5":
        "0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b",
    "io.netty:netty-buffer:4.1.130.Final":
        "00a522b67ea35cb7b4dd9cf27f85c6c58f5e306785aa045302e5f6b2d4944a87",
    "io.netty:netty-codec:4.1.130.Final":
        "52636bc29bd62120b97bbe5d1d21eab9b1cb2bef8efbb54d2221c5f3fa08d8cd",
    "io.netty:netty-common:4.1.130.Final":
        "53921f28dd5a352b1bed0e1cbcc54d013dc60ffebeae9b2b1e53eabef317e581",
    "io.netty:netty-handler:4.1.130.Final":
        "98c78ec187ca30a4b9775bf6f632f5c9929db6bf06a60e6971f945813880ca0f",
    "io.netty:netty-resolver:4.1.130.Final":
        "48c5b218a89d184e1b601d46433957f515fcefdb4464182b1348bce4f5a18f35",
    "io.netty:netty-transport:4.1.130.Final":
        "1bf573266d271f856705a9984d25449c56a1d73c02a16af12033ceccfe555dbb",
    "io.netty:netty-transport-native-unix-common:4.1.130.Final":
        "cf5efc4168597d7cd14695b469418cac2a1134533f9a0c82ef0538d796fd39e1",
    "commons-io:commons-io:2.19.0":
        "824268919b4b62f9f40f08c54381de5993b078f58667e332d17348ae019d72b9",
}  # fmt: skip
"""group:artifact:version -> SHA-256 of the jar. What a server of ZooKeeper loads, and no more."""
DEBIAN = Path("/usr/share/java")
DEBIAN_JARS = (
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "slf4j-simple",
    "metrics-core",
    "snappy-java",
    "netty-handler",
    "netty-common",
    "netty-buffer",
    "netty-transport",
    "netty-codec",
    "netty-resolver",
    "commons-io",
)
PYSPARK_JARS = (
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "log4j-slf4j2-impl",
    "log4j-api",
    "log4j-core",
    "metrics-core",
    "snappy-java",
    "netty-handler",
    "netty-common",
    "netty-buffer",
    "netty-transport",
    "netty-codec-base",
    "netty-codec",  # older pyspark: what netty-codec-base was part of
    "netty-resolver",
    "commons-io",
    "audience-annotations",
)
_PYSPARK_NEEDED = frozenset(PYSPARK_JARS) - {"netty-codec-base", "netty-codec"}
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>herdpy</groupId>
  <artifactId>zookeeper</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>"""
_FETCH_S_MAX = 600.0


class Jars(NamedTuple):
    """A class path, and which of the two ways to set up its log it has."""

    paths: list[Path]
    has_log4j: bool
    """Log4j 2, from a file; else SLF4J's own simple logger, from properties of the system."""


def find_jars() -> Jars:
    """Return the jars that a server needs: Maven's, else Debian's, else pyspark's.

    BookieStartError: there are none, or one is not what it should be.
    """
    found = _fetched() or _debian() or _pyspark()
    if found is None:
        raise BookieStartError(
            "ZooKeeper's jars are not on this machine. Each of these brings them: Maven on PATH "
            f"({sys.executable} -m bookie.admin.zookeeper_jars, 8 MB); Debian's package "
            "(apt-get install libzookeeper-java, 32 MB); pyspark "
            f"({install_command('zookeeper')}, 450 MB)"
        )
    return found


def is_fetch_needed() -> bool:
    """Tell whether no jars are here that find_jars() finds, and Maven is, which can fetch them."""
    return shutil.which("mvn") is not None and not (_fetched() or _debian() or _pyspark())


def fetch() -> list[Path]:
    """Let Maven fetch the jars for this user, unless they are there; return them.

    BookieStartError: there is no Maven, it failed, or a jar has another checksum.
    """
    there = _fetched()
    if there is not None:
        return there.paths
    maven = shutil.which("mvn")
    if maven is None:
        raise BookieStartError("Maven (mvn) is not on PATH: install it (Debian: maven)")
    target = _folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as made:
        pom, jars = Path(made, "pom.xml"), Path(made, "jars")
        dependencies = (_DEPENDENCY.format(*name.split(":")) for name in PINNED)
        pom.write_text(_POM.format("".join(dependencies)))
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        ran = subprocess.run(  # noqa: S603 - Maven, with a file of ours
            [*command, f"-DoutputDirectory={jars}"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FETCH_S_MAX,
            check=False,
        )  # fmt: skip
        if ran.returncode:
            said = next((x for x in ran.stdout.splitlines() if x.startswith("[ERROR]")), "")
            raise BookieStartError(f"Maven cannot fetch ZooKeeper's jars: {said[:300]}")
        _check(jars)
        try:
            jars.rename(target)
        except OSError:
            if not target.exists():  # else another process has just done the same
                raise
    return _check(target)


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache, "herdpy", f"zookeeper-{VERSION}")


def _fetched() -> Jars | None:
    folder = _folder()
    return Jars(_check(folder), has_log4j=False) if folder.is_dir() else None


def _check(folder: Path) -> list[Path]:
    """Return the jars of a folder that Maven filled; BookieStartError: one is another's."""
    paths: list[Path] = []
    for name, wanted in PINNED.items():
        _, artifact, version = name.split(":")
        path = folder / f"{artifact}-{version}.jar"
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no file"
        if found != wanted:
            raise BookieStartError(
                f"{path}: expected the SHA-256 {wanted}, found {found}. Remove {folder} and fetch "
                f"it anew: {sys.executable} -m bookie.admin.zookeeper_jars"
            )
        paths.append(path)
    return paths


def _debian() -> Jars | None:
    paths = [DEBIAN / f"{name}.jar" for name in DEBIAN_JARS]
    return Jars(paths, has_log4j=False) if all(path.is_file() for path in paths) else None


def _pyspark() -> Jars | None:
    package = package_folder("pyspark")
    if package is None:
        return None
    folder = package / "jars"
    found = {name: sorted(folder.glob(f"{name}-[0-9]*.jar")) for name in PYSPARK_JARS}
    missing = sorted(name for name in _PYSPARK_NEEDED if not found[name])
    if missing:
        raise BookieStartError(
            f"{folder} lacks {', '.join(missing)}: expected a pyspark of version 4 or newer. "
            f"Install it: {install_command('zookeeper')}"
        )
    return Jars([paths[-1] for paths in found.values() if paths], has_log4j=True)


def package_folder(name: str) -> Path | None:
    """Return where an installed package lies; None: it is not installed."""
    # Found, not imported: pyspark takes long to import.
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def main() -> None:
    try:
        paths = fetch()
    except (BookieStartError, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"zookeeper_jars: {error}")
    print(f"ZooKeeper {VERSION}: {len(paths)} jars in {paths[0].parent}")


if __name__ == "__main__":
    main()
