"""Where ZooKeeper's jars are taken from, and that only the named ones are believed."""

import hashlib
import sys
from pathlib import Path

import pytest

from bookie.admin import zookeeper_jars
from bookie.admin.zookeeper_jars import PINNED, fetch, find_jars, is_fetch_needed
from bookie.errors import BookieStartError

CONTENT = b"a jar"
SUM = hashlib.sha256(CONTENT).hexdigest()
MAVEN = """#!{python}
import sys
from pathlib import Path
words = dict(word.split("=", 1) for word in sys.argv if "=" in word)
if {fails}:
    print("[INFO] at work")
    print("[ERROR] no way there")
    sys.exit(1)
pom = Path(sys.argv[sys.argv.index("-f") + 1]).read_text()
folder = Path(words["-DoutputDirectory"])
folder.mkdir()
for name in {names}:
    assert all(f">{{part}}<" in pom for part in name.split(":")), name
    _, artifact, version = name.split(":")
    (folder / f"{{artifact}}-{{version}}.jar").write_bytes({content!r})
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Maven, Debian's packages, pyspark and jars; its folder of programs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(zookeeper_jars, "DEBIAN", tmp_path / "java")
    monkeypatch.setattr(zookeeper_jars, "package_folder", lambda name: None)
    return programs


def install_maven(programs: Path, *, content: bytes = CONTENT, fails: bool = False) -> None:
    program = programs / "mvn"
    text = MAVEN.format(python=sys.executable, names=list(PINNED), content=content, fails=fails)
    program.write_text(text)
    program.chmod(0o755)


def test_the_pinned_jars_are_those_of_one_zookeeper() -> None:
    names = [name.split(":") for name in PINNED]
    versions = {version for _, artifact, version in names if artifact.startswith("zookeeper")}
    assert versions == {zookeeper_jars.VERSION}
    assert len({version for _, artifact, version in names if artifact.startswith("netty")}) == 1
    assert all(len(bytes.fromhex(each)) == 32 for each in PINNED.values())


def test_a_jar_with_another_checksum_is_not_taken(machine: Path, tmp_path: Path) -> None:
    install_maven(machine)
    assert is_fetch_needed()
    with pytest.raises(BookieStartError, match=f"expected the SHA-256 .*, found {SUM}"):
        fetch()
    assert list((tmp_path / "cache" / "herdpy").iterdir()) == []
    assert is_fetch_needed()


def test_what_maven_has_fetched_is_used_and_checked_each_time(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_jars, "PINNED", dict.fromkeys(PINNED, SUM))
    install_maven(machine)
    paths = fetch()
    assert [path.read_bytes() for path in paths] == [CONTENT] * len(PINNED)
    (machine / "mvn").unlink()
    assert not is_fetch_needed()
    assert find_jars() == (paths, False)
    assert fetch() == paths
    paths[3].write_bytes(CONTENT[:-1])
    with pytest.raises(BookieStartError, match=f"{paths[3].name}: expected .* Remove .* fetch"):
        find_jars()


def test_what_maven_says_is_told(machine: Path) -> None:
    install_maven(machine, fails=True)
    with pytest.raises(BookieStartError, match=r"Maven cannot fetch .*: \[ERROR\] no way there"):
        fetch()


def test_debian_comes_before_pyspark(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "pyspark"
    (package / "jars").mkdir(parents=True)
    monkeypatch.setattr(zookeeper_jars, "package_folder", lambda name: package)
    with pytest.raises(BookieStartError, match=r"lacks .*zookeeper.* pyspark of version 4"):
        find_jars()
    for name in zookeeper_jars.PYSPARK_JARS:
        (package / "jars" / f"{name}-1.0.jar").touch()
    found = find_jars()
    assert found.has_log4j
    assert len(found.paths) == len(zookeeper_jars.PYSPARK_JARS)
    (tmp_path / "java").mkdir()
    for name in zookeeper_jars.DEBIAN_JARS:
        (tmp_path / "java" / f"{name}.jar").touch()
    assert find_jars().paths[0] == tmp_path / "java" / "zookeeper.jar"
    assert not find_jars().has_log4j
