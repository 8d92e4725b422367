"""What the documents say is true: code runs, examples print what they show, paths lead somewhere.

Blocks of one document run in order and share their names, in an empty folder. Languages:
- python: run; `print(...)  # -> text` must print that text.
- sql: each statement runs on one database of the document; `-- error 42P01` behind a statement
  expects that SQLSTATE.
- sh: each line's command must be make with a target that exists, pip install, herdpy, or bookie
  with commands and options that it has.
- text, mermaid: shown only. Any other language, or none, fails: nothing is skipped in silence.
"""

import io
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import herdpy
from bookie.admin.app import app as bookie_app
from tests.style import generate_reference
from tests.style.test_layers import ROOT

_FENCE = re.compile(r"^(?P<fence>```+)(?P<language>\S*)(?P<rest>.*)$")
_EXPECTED = re.compile(r"#\s*->\s?(?P<text>.*)$")
_PATH = re.compile(r"`((?:herdpy|bookie|tests|docs|examples|\.ci)/[\w./-]*)`")
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)[^)]*\)")
_OUTPUT_MARK = "# Prints:\n"
PYTHON_ELSEWHERE = {
    "docs/guides/embedded-node.md": "tests/integration/test_embedded_node.py",
    "docs/guides/spark.md": "tests/spark/test_guide.py",
    "docs/guides/spark-pipeline.md": "tests/spark/test_guide.py",
}
"""Pages whose Python needs more than this process, and the tests that run it."""


class Block(NamedTuple):
    language: str
    line: int
    text: str


def documents() -> list[str]:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("herdpy/**/*.md")]
    return sorted(page.relative_to(ROOT).as_posix() for page in pages)


def examples() -> list[str]:
    return sorted(page.relative_to(ROOT).as_posix() for page in ROOT.glob("examples/*.py"))


def blocks(text: str) -> list[Block]:
    found: list[Block] = []
    opened: tuple[str, str, int] | None = None
    body: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if opened is None:
            match = _FENCE.match(line.strip())
            if match:
                opened, body = (match["fence"], match["language"], number), []
        elif line.strip() == opened[0]:
            found.append(Block(opened[1], opened[2], "\n".join(body) + "\n"))
            opened = None
        else:
            body.append(line)
    if opened is not None:
        raise AssertionError(f"line {opened[2]}: the block has no end")
    return found


def run_python(block: Block, names: dict[str, object], where: str) -> None:
    # Blank lines keep the numbers of the document in tracebacks.
    code = compile("\n" * block.line + block.text, where, "exec")
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(code, names)
    expected = [m["text"] for line in block.text.splitlines() if (m := _EXPECTED.search(line))]
    if expected:
        assert printed.getvalue().splitlines() == expected, f"{where}:{block.line}"


def run_sql(block: Block, where: str) -> None:
    with herdpy.connect("of_the_sql_blocks", autocommit=True) as connection:
        for piece in re.split(r"(?<=;)", block.text):
            statement = re.sub(r"^\s*--.*$", "", piece, flags=re.MULTILINE).strip()
            if not statement:
                continue
            code = re.search(r"--\s*error\s+(\w{5})", piece)
            if code is None:
                connection.execute(statement.rstrip(";"))
                continue
            with pytest.raises(herdpy.Error) as caught:
                connection.execute(statement.rstrip(";"))
            assert caught.value.sqlstate == code[1], f"{where}:{block.line}: {statement}"


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def is_bookie_command(words: list[str]) -> bool:
    """Tell whether commands and long options are those of the bookie command."""
    command: click.Command = bookie_app
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        return False
    known = {option for parameter in command.params for option in parameter.opts}
    return {word for word in words if word.startswith("--")} <= known | {"--help"}


def check_shell(block: Block, where: str) -> None:
    for line in block.text.splitlines():
        words = line.split("#")[0].removeprefix("$ ").split()
        if not words:
            continue
        is_known = (
            (words[0] == "make" and {w for w in words[1:] if "=" not in w} <= make_targets())
            or words[:2] == ["pip", "install"]
            or words[0] in ("herdpy", "git", "cd", "export")
            or (words[0] == "bookie" and is_bookie_command(words[1:]))
        )
        assert is_known, f"{where}:{block.line}: what is {line!r}?"


@pytest.mark.parametrize("document", documents())
def test_blocks(document: str, in_directory: Path) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks((ROOT / document).read_text()):
        if block.language == "python" and document in PYTHON_ELSEWHERE:
            assert document in (ROOT / PYTHON_ELSEWHERE[document]).read_text()
        elif block.language == "python":
            run_python(block, names, document)
        elif block.language == "sql":
            run_sql(block, document)
        elif block.language == "sh":
            check_shell(block, document)
        else:
            assert block.language in ("text", "mermaid"), (
                f"{document}:{block.line}: {block.language!r} is no language that this test knows"
            )


@pytest.mark.parametrize("document", documents())
def test_paths_and_links_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text()
    missing = [path for path in _PATH.findall(text) if not (ROOT / path).exists()]
    folder = (ROOT / document).parent
    missing += [link for link in _LINK.findall(text) if not (folder / link).exists()]
    assert not missing, f"{document} names what is not there: {', '.join(missing)}"


@pytest.mark.parametrize("example", examples())
def test_example(example: str, in_directory: Path) -> None:
    text = (ROOT / example).read_text()
    assert _OUTPUT_MARK in text, f"{example}: show its output in comments under '{_OUTPUT_MARK}'"
    shown = [line[2:] for line in text.split(_OUTPUT_MARK)[1].splitlines()]
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / example)],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == shown


@pytest.mark.parametrize("name", sorted(generate_reference.PAGES))
def test_reference_is_fresh(name: str) -> None:
    page = ROOT / "docs" / "reference" / name
    assert page.read_text() == generate_reference.PAGES[name](), "run `make reference`"


def test_every_make_target_is_explained() -> None:
    text = (ROOT / "Makefile").read_text()
    explained = set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    assert make_targets() == explained


def test_changes_are_filed() -> None:
    kinds = {"safety", "sql", "operations", "internals"}
    for fragment in (ROOT / "docs" / "changes").iterdir():
        kind = fragment.name.split(".")[-2]
        assert fragment.name == "README.md" or kind in kinds, fragment.name


def test_a_wrong_block_is_found(in_directory: Path) -> None:
    with pytest.raises(AssertionError):
        run_python(Block("python", 1, "print(1)  # -> 2\n"), {}, "x.md")
    with pytest.raises(ZeroDivisionError):
        run_python(Block("python", 1, "1 / 0\n"), {}, "x.md")
    with pytest.raises(AssertionError):
        check_shell(Block("sh", 1, "make no-such-target\n"), "x.md")
    with pytest.raises(AssertionError):
        check_shell(Block("sh", 1, "bookie bookies no-such-command\n"), "x.md")
    with pytest.raises(AssertionError):
        blocks("```python\nnever closed\n")
