"""What a user can name is written down, and what is written down does something.

System tables stand in docs/reference/sql.md, messages in docs/protocols/frames.md, both with their
fields; every setting is read by the product; every name of the API is in docs/reference/python.md.
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from types import ModuleType

import msgspec
import pytest

import herdpy
from bookie import config as bookie_config
from herdpy import aio, spark
from herdpy import config as herdpy_config
from herdpy.engine.state.system_tables import SYSTEM_TABLES
from herdpy.proto import messages
from tests.style.python_reference import SECTIONS, python_page
from tests.style.test_layers import ROOT, product_files

SQL_PAGE = ROOT / "docs" / "reference" / "sql.md"
FRAMES_PAGE = ROOT / "docs" / "protocols" / "frames.md"


# --- system tables --------------------------------------------------------------------------------


def tables_of(page: str) -> dict[str, list[str]]:
    """Return the columns of each system table that a page describes."""
    section = page.split("## System tables")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|(.*)\|$", section, re.MULTILINE)
    return {name: re.findall(r"`(\w+)`", columns) for name, columns in rows}


def test_system_tables() -> None:
    written = tables_of(SQL_PAGE.read_text())
    there = {
        name: [column.name for column in table.visible_columns]
        for name, table in SYSTEM_TABLES.items()
    }
    assert written == there


def test_a_system_table_that_is_not_written_down_is_found() -> None:
    page = SQL_PAGE.read_text()
    assert "syslocks" not in tables_of(page)
    assert tables_of(page.replace("`lease` (its id), ", ""))["sysleases"][0] == "user_name"


# --- messages -------------------------------------------------------------------------------------


def unwritten(page: str, kinds: Iterable[type[messages.Message]]) -> list[str]:
    """Return the messages whose number, name or fields are not a row of the page."""
    found = []
    rows = {
        (int(number), name): " ".join(rest.replace("_", " ").replace("\\|", "").split())
        for number, name, rest in re.findall(r"^\| (\d+) \| (\w+) \|(.*)$", page, re.MULTILINE)
    }
    for kind in kinds:
        text: str | None = rows.get((kind.__struct_config__.tag, kind.__name__))  # type: ignore[arg-type]
        if text is None:
            found.append(kind.__name__)
            continue
        for field in kind.__struct_fields__:
            _, word, text = text.partition(field.replace("_", " "))
            if not word:
                found.append(f"{kind.__name__}.{field}")
                break
    return found


def all_messages() -> list[type[messages.Message]]:
    return [
        kind
        for kind in vars(messages).values()
        if isinstance(kind, type)
        and issubclass(kind, messages.Message)
        and msgspec.inspect.type_info(kind).tag is not None  # type: ignore[attr-defined]
    ]


def test_messages() -> None:
    kinds = all_messages()
    assert len(kinds) > 40
    assert unwritten(FRAMES_PAGE.read_text(), kinds) == []


def test_a_message_that_is_not_written_down_is_found() -> None:
    page = FRAMES_PAGE.read_text()
    assert unwritten(page.replace("| 12 | Ping |", "| 13 | Ping |"), [messages.Ping]) == ["Ping"]
    cut = page.replace("| 40 | Export | request, kind", "| 40 | Export | request")
    assert unwritten(cut, [messages.Export]) == ["Export.kind"]


# --- settings -------------------------------------------------------------------------------------


def reads(tree: ast.AST) -> set[str]:
    """Return the names that are read as attributes."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def unread(config: str, sources: Iterable[str], names: Iterable[str]) -> set[str]:
    """Return the settings that no source reads, be it through a property of the configuration."""
    read = set[str]().union(*(reads(ast.parse(source)) for source in sources))
    for node in ast.walk(ast.parse(config)):
        if isinstance(node, ast.FunctionDef) and node.name in read:
            read |= reads(node)
    return set(names) - read


def settings_of(module: ModuleType) -> list[str]:
    kinds = [kind for kind in vars(module).values() if is_dataclass(kind)]
    return [item.name for kind in kinds for item in fields(kind)]


@pytest.mark.parametrize("module", [herdpy_config, bookie_config])
def test_settings_are_read(module: ModuleType) -> None:
    package = module.__name__.split(".")[0]
    paths = [path for path in product_files() if path.startswith(f"{package}/")]
    own = f"{package}/config.py"
    sources = [(ROOT / path).read_text() for path in paths if path != own]
    names = settings_of(module)
    assert len(names) > 20
    assert unread((ROOT / own).read_text(), sources, names) == set()


def test_a_setting_that_nothing_reads_is_found() -> None:
    config = (
        "class Config:\n    def half(self): return self.d / 2\n    def third(self): return self.e"
    )
    source = "config.a = 1\nprint(config.b, config.half)\nc = 'config.c'\n"
    assert unread(config, [source], ["a", "b", "c", "d", "e"]) == {"a", "c", "e"}


# --- names of the API -----------------------------------------------------------------------------

_ELSEWHERE = set(herdpy._ERRORS.split()) | set(herdpy._TYPES.split())
"""Errors have a page of their own; types are PEP 249's."""
_SETTINGS = {"Config", "NodeConfig", "ServerConfig"}
"""Which stand in docs/reference/config.md."""


def test_the_python_reference_has_every_public_name() -> None:
    parts = {section.title: {part.name for part in section.parts} for section in SECTIONS}
    named = parts["import herdpy"] | parts["A node of a cluster"]
    assert set(herdpy._HOMES) - _ELSEWHERE - _SETTINGS <= named
    public = {
        name
        for name, value in vars(aio).items()
        if str(getattr(value, "__module__", "")).startswith("herdpy.aio.")
    }
    assert len(public) > 5
    assert public <= parts["from herdpy import aio"]
    assert set(spark._MODULES) == parts["import herdpy.spark"]


def test_every_name_of_the_python_reference_is_explained() -> None:
    lines = python_page().splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("### ")]
    bare = [lines[n] for n in heads if lines[n + 1 :] and lines[n + 2].startswith("#")]
    assert len(heads) > 25
    assert bare == []
