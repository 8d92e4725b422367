"""Every module says what it is for, and no noqa stands without a code and a reason."""

import ast
import re
from collections import Counter
from pathlib import PurePath

from tests.style.test_layers import ROOT, product_files

# What a reader still takes in at a glance: a folder with more modules has parts that want names.
_FOLDER_MODULES_MAX = 24

_FOLDERS = ("herdpy", "bookie", "spark_connector", "docs", "tests")

# Files that the code speaks of; demo.py is a user's.
_FILE = re.compile(r"(?<![\w/.*])(?:[\w-]+/)*[\w-]+\.(?:py|md)\b")
_NOT_OURS = {"demo.py"}

_NOQA = re.compile(r"#\s*noqa(?P<rest>.*)$")
_NOQA_WITH_REASON = re.compile(r"^: [A-Z]+[0-9]+(, [A-Z]+[0-9]+)* - \S")


def test_modules_open_with_a_sentence() -> None:
    found = []
    for path in product_files():
        text = ast.get_docstring(ast.parse((ROOT / path).read_text()))
        if not text or not text.splitlines()[0].rstrip().endswith((".", ":", ";")):
            found.append(path)
    assert not found, "no sentence of purpose on the first line: " + ", ".join(found)


def bare_noqas(source: str) -> list[int]:
    return [
        number
        for number, line in enumerate(source.splitlines(), 1)
        if (match := _NOQA.search(line)) and not _NOQA_WITH_REASON.match(match["rest"])
    ]


def test_every_noqa_has_code_and_reason() -> None:
    found = [f"{p}:{n}" for p in product_files() for n in bare_noqas((ROOT / p).read_text())]
    assert not found, ", ".join(found)


def test_a_bare_noqa_is_found() -> None:
    assert bare_noqas("x = 1  # noqa\ny = 2  # noqa: S101\nz = 3  # noqa: S101 - why\n") == [1, 2]


def path_ends(paths: list[str]) -> set[str]:
    """Return the ways to name files: by their whole paths, or by the last parts of them."""
    parted = [path.split("/") for path in paths]
    return {"/".join(parts[start:]) for parts in parted for start in range(len(parts))}


def missing_files(source: str, ends: set[str]) -> list[str]:
    return [name for name in _FILE.findall(source) if name not in ends | _NOT_OURS]


def test_files_that_are_named_are_there() -> None:
    paths = [path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.*")]
    ends = path_ends([str(path.relative_to(ROOT)) for path in paths])
    found = {path: missing_files((ROOT / path).read_text(), ends) for path in product_files()}
    assert not {path: names for path, names in found.items() if names}


def test_a_file_that_is_gone_is_found() -> None:
    ends = path_ends(["herdpy/a/b.py", "docs/guides/c.md"])
    assert missing_files("see b.py, a/b.py, docs/guides/c.md, *_pb2.py", ends) == []
    assert missing_files("see x/b.py, CLUSTER.md", ends) == ["x/b.py", "CLUSTER.md"]


def full_folders(paths: list[str]) -> dict[str, int]:
    """Return the folders with more modules than a reader takes in, generated ones not counted."""
    counts = Counter(str(PurePath(path).parent) for path in paths if "_pb2" not in path)
    return {folder: count for folder, count in counts.items() if count > _FOLDER_MODULES_MAX}


def test_no_folder_has_too_many_modules() -> None:
    assert not full_folders(list(map(str, product_files()))), "split the folder by what it is for"


def test_a_full_folder_is_found() -> None:
    paths = [f"herdpy/x/m{n}.py" for n in range(25)]
    assert full_folders(paths) == {"herdpy/x": 25}
    assert not full_folders([*paths[1:], "herdpy/x/m_pb2.py", "herdpy/y/m.py"])
