"""docs/reference/python.md from the docstrings and signatures of the public API.

It is read from the source, not from objects: so what a machine lacks (pyspark) and how its Python
shows an annotation make no difference.
"""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.style.test_layers import ROOT

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_AWAITED = {"awaited", "giving", "_aside"}
"""What makes a method of herdpy.aio from one of the driver's."""
INNER = {
    "AsyncConnection.run",
    "AsyncConnection.run_aside",
    "AsyncPipeline.run",
    "Connection.live_session",
    "ClusterPlace.look_at_files",
    "ClusterPlace.session",
    "ClusterPlace.url_options",
    "Node.bookie_config",
    "Node.url_options",
    "RunningNode.end",
    "Cursor.take",
    "Pipeline.is_full",
}
"""Names without an underscore that one module of the driver has for another."""


class Part(NamedTuple):
    """A function or class of the API, and the file that it stands in."""

    name: str
    path: str
    base: str = ""
    """The class of herdpy/driver/pool.py that it is shown with."""


class Section(NamedTuple):
    title: str
    text: str
    parts: tuple[Part, ...]


def _parts(path: str, names: str) -> tuple[Part, ...]:
    return tuple(Part(name, path) for name in names.split())


_SPARK = "spark_connector/pyspark_herdpy"
SECTIONS = (
    Section(
        "import herdpy",
        "PEP 249: `apilevel` 2.0, `threadsafety` 2 (threads may share connections), `paramstyle`"
        " qmark (`:name` works, too). The [errors](errors.md) and the types of PEP 249 are names of"
        " the module. Guide: [the driver](../guides/driver.md).",
        (
            *_parts("herdpy/driver/connection.py", "connect Connection"),
            *_parts("herdpy/driver/transaction_block.py", "TransactionBlock Rollback"),
            *_parts("herdpy/driver/cursor.py", "Cursor"),
            *_parts("herdpy/driver/box.py", "Box"),
            *_parts("herdpy/driver/pipeline.py", "Pipeline"),
            Part("Pool", "herdpy/driver/pool.py", base="Lending"),
            *_parts("herdpy/driver/restoring.py", "restore"),
        ),
    ),
    Section(
        "A node of a cluster",
        "With the extra `bookie`. Its settings are [`ServerConfig`, `Config` and"
        " `NodeConfig`](config.md), names of the module. Guide: [a node in your own"
        " program](../guides/embedded-node.md).",
        (
            *_parts("herdpy/node/node.py", "Node RunningNode"),
            *_parts("herdpy/node/place.py", "ClusterPlace"),
        ),
    ),
    Section(
        "Snapshots and staging",
        "What `Connection.lease()`, `.partitions()`, `.stage()` and `.column_defaults()` return."
        " Guide: [staging](../guides/staging.md).",
        (
            *_parts("herdpy/driver/leases.py", "SnapshotLease Partition"),
            *_parts("herdpy/driver/staging.py", "StagingJob Stage StageToken"),
            *_parts("herdpy/driver/defaults.py", "ColumnDefault"),
        ),
    ),
    Section(
        "from herdpy import aio",
        "",
        (
            *_parts("herdpy/aio/connection.py", "connect AsyncConnection"),
            *_parts("herdpy/aio/cursor.py", "AsyncCursor AsyncBatches"),
            *_parts(
                "herdpy/aio/handles.py", "AsyncTransaction AsyncPipeline AsyncLease AsyncStage"
            ),
            Part("Pool", "herdpy/aio/pool.py", base="Lending"),
        ),
    ),
    Section(
        "import herdpy.spark",
        "With the extra `spark`. Guide: [Spark](../guides/spark.md).",
        (
            *_parts(f"{_SPARK}/session.py", "session active with_pushdown release commit_position"),
            *_parts(f"{_SPARK}/mapping.py", "sql_type spark_schema create_table"),
        ),
    ),
)
_POOL = "herdpy/driver/pool.py"
_MODULES = {"from herdpy import aio": "herdpy/aio/__init__.py"}
"""Title -> the file whose docstring the section begins with."""


def python_page() -> str:
    lines = [
        "# The Python API",
        "",
        "Generated from docstrings in `herdpy/` and `spark_connector/` by `make reference`; do not"
        " edit.",
        "",
        "What SET changes is in [SQL](sql.md), what a database and a server are set to in"
        " [settings](config.md).",
    ]
    for section in SECTIONS:
        lines += ["", f"## {section.title}"]
        if section.title in _MODULES:
            text = ast.get_docstring(_tree(_MODULES[section.title]))
            lines += ["", *_indented_as_code(text or "")]
        lines += ["", section.text] if section.text else []
        for part in section.parts:
            lines += ["", *_shown(part)]
    return "\n".join(lines) + "\n"


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def definition(name: str, path: str) -> _Function | ast.ClassDef:
    for node in _tree(path).body:
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and node.name == name:
            return node
    raise LookupError(f"{path} defines no {name}")


def _shown(part: Part) -> Iterator[str]:
    node = definition(part.name, part.path)
    yield f"### {part.name}"
    if not isinstance(node, ast.ClassDef):
        yield from _described(_signature(node, part.path), ast.get_docstring(node))
        return
    shown = [(node, part.path)]
    if part.base:
        base = definition(part.base, _POOL)
        assert isinstance(base, ast.ClassDef)
        made_by = next(each for each in base.body if getattr(each, "name", "") == "__init__")
        assert isinstance(made_by, ast.FunctionDef)
        signature = _signature(made_by, _POOL).replace("__init__", part.name)
        yield from _described(signature.removesuffix(" -> None"), None)
        shown.insert(0, (base, _POOL))
    for each, path in shown:
        text = ast.get_docstring(each)
        if text:
            yield from ("", text)
        awaited = dict(_awaited(each))
        if awaited:
            (of,) = {method.split(".")[0] for method, _ in awaited.values()}
            names = (f"`{name}` ({gives})" if gives else f"`{name}`"
                     for name, (_, gives) in awaited.items())  # fmt: skip
            yield from ("", f"Methods of `{of}`, awaited (what they give): {', '.join(names)}.")
        for signature, meaning in _members(each, path):
            yield from _described(signature, meaning)


def _awaited(node: ast.ClassDef) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield (name, (the driver's method, what of herdpy.aio its result is, if anything))."""
    for each in node.body:
        if not (isinstance(each, ast.Assign) and isinstance(each.value, ast.Call)):
            continue
        call, name = each.value, ast.unparse(each.targets[0])
        if ast.unparse(call.func) in _AWAITED and not name.startswith("_"):
            gives = f"`{ast.unparse(call.args[0])}`" if len(call.args) > 1 else ""
            yield name, (ast.unparse(call.args[-1]).removeprefix("driver."), gives)


def _members(node: ast.ClassDef, path: str) -> Iterator[tuple[str, str | None]]:
    """Yield the signature and the docstring of what a class defines for its users."""
    setters = {each.name for each in node.body if isinstance(each, _FUNCTIONS) and _is_setter(each)}
    for index, each in enumerate(node.body):
        if isinstance(each, _FUNCTIONS):
            is_inner = each.name.startswith("_") or f"{node.name}.{each.name}" in INNER
            if is_inner or _is_setter(each):
                continue
            if "property" in map(ast.unparse, each.decorator_list):
                can_be_set = "; can be set" if each.name in setters else ""
                kind = "" if each.returns is None else f": {_annotation(each.returns)}"
                yield f"{each.name}{kind}{can_be_set}", ast.get_docstring(each)
            else:
                yield _signature(each, path), ast.get_docstring(each)
        elif isinstance(each, ast.AnnAssign) and not ast.unparse(each.target).startswith("_"):
            following = node.body[index + 1] if index + 1 < len(node.body) else None
            meaning = None
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                meaning = inspect.cleandoc(str(following.value.value))
            yield f"{ast.unparse(each.target)}: {_annotation(each.annotation)}", meaning


def _is_setter(node: _Function) -> bool:
    return any(ast.unparse(each).endswith(".setter") for each in node.decorator_list)


def _signature(node: _Function, path: str) -> str:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [*arguments.defaults]
    defaults = [None] * (len(positional) - len(defaults)) + defaults
    shown = [_argument(*pair, path) for pair in zip(positional, defaults, strict=True)]
    if positional and positional[0].arg == "self":
        del shown[0]
    if arguments.kwonlyargs:
        shown.append("*")
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    shown += [_argument(*pair, path) for pair in keywords]
    if arguments.kwarg is not None:
        shown.append(f"**{_argument(arguments.kwarg, None, path)}")
    decorators = set(map(ast.unparse, node.decorator_list))
    before, returns = "", node.returns
    if decorators & {"contextmanager", "asynccontextmanager"}:
        assert returns is not None
        yields = _unquoted(returns)
        assert isinstance(yields, ast.Subscript)
        before, returns = "with ", yields.slice
    if isinstance(node, ast.AsyncFunctionDef):
        before = f"async {before}" if before else "await "
    after = "" if returns is None else f" -> {_annotation(returns)}"
    return f"{before}{node.name}({', '.join(shown)}){after}"


def _argument(argument: ast.arg, default: ast.expr | None, path: str) -> str:
    text = argument.arg
    if argument.annotation is not None:
        text += f": {_annotation(argument.annotation)}"
    return text if default is None else f"{text} = {ast.unparse(_value(default, path))}"


def _value(default: ast.expr, path: str) -> ast.expr:
    """Return what a name stands for in a file, or in the file that it is imported from."""
    if not isinstance(default, ast.Name):
        return default
    for node in _tree(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == default.id:
            return _value(node.value, path)
        if isinstance(node, ast.ImportFrom) and default.id in [each.name for each in node.names]:
            return _value(default, f"{str(node.module).replace('.', '/')}.py")
    raise LookupError(f"{path} does not say what {default.id} is")


class _Unquoted(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        is_text = isinstance(node.value, str)
        return ast.parse(str(node.value), mode="eval").body if is_text else node


def _unquoted(node: ast.expr) -> ast.expr:
    found: ast.expr = _Unquoted().visit(ast.parse(ast.unparse(node), mode="eval").body)
    return found


def _annotation(node: ast.expr) -> str:
    return ast.unparse(_unquoted(node))


def _described(signature: str, meaning: str | None) -> Iterator[str]:
    yield from ("", f"**`{signature}`**")
    if meaning:
        yield from ("", meaning)


def _indented_as_code(text: str) -> Iterator[str]:
    """Yield the lines of a docstring, its indented ones as a block that is shown only."""
    is_inside = False
    for line in text.splitlines():
        is_code = line.startswith("    ") or (is_inside and not line)
        if is_code != is_inside:
            yield "```text" if is_code else "```"
            if not is_code:
                yield ""
        is_inside = is_code
        if line or not is_code:
            yield line.removeprefix("    ") if is_code else line
