"""Lines: threads of a simulated process that are stopped between two statements of the product.

preempted(at_line) has the functions of LINED call at_line() before each of their statements, in the
block: their source is compiled with the calls in it, and each function gets the code that is so
made. Not by sys.settrace() or sys.monitoring: what runs while they call back is not traced, and a
thread that is stopped there lets others run. Any Python that herdpy has.
"""

import ast
import gc
import importlib
import inspect
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

LINED = (
    "bookie.runtime.ticket",
    "herdpy.cluster.blocking_chain",
    "herdpy.cluster.database_copy",
    "herdpy.engine.maintenance.replica",
    "herdpy.engine.session.core",
    "herdpy.engine.session.fast_path",
    "herdpy.engine.state.applier",
    "herdpy.engine.state.commit_tokens",
    "herdpy.engine.state.locks",
    "herdpy.engine.state.tablespace",
    "herdpy.log.file_log",
    "herdpy.log.followed_log",
    "herdpy.log.ledger_log",
    "herdpy.log.syncer",
    "herdpy.server.requests.requests",
)
"""What threads have in common: the log, what applies it, and the requests that wait for it."""
OUTCOMES = (
    "bookie.runtime.ticket",
    "herdpy.engine.state.tablespace",
    "herdpy.log.syncer",
    "herdpy.server.requests.requests",
)
"""What a commit passes between the log and the client that is told of it."""
CHANGES = (
    "herdpy.engine.maintenance.checkpoint",
    "herdpy.engine.maintenance.page_commits",
    "herdpy.engine.session.leasing",
    "herdpy.engine.session.numbers",
    "herdpy.engine.session.runner",
    "herdpy.engine.session.spilled_commits",
    "herdpy.engine.session.staging",
    "herdpy.engine.state.memtable",
    "herdpy.engine.state.page_adoption",
    "herdpy.engine.state.snapshot_leases",
    "herdpy.engine.state.snapshots",
    "herdpy.engine.state.tablespace",
    "herdpy.engine.state.transaction_snapshot",
    "herdpy.engine.writes.inserts",
    "herdpy.engine.writes.keyed",
    "herdpy.engine.writes.nonblocking",
    "herdpy.engine.writes.row_writes",
    "herdpy.engine.writes.spilled_writes",
    "herdpy.engine.writes.staging_uses",
    "herdpy.engine.writes.unique",
)
"""What a statement changes, what reads it meanwhile, and what puts it into pages."""
_HOOK = "_at_line_of_a_simulation"


class _Lined(NamedTuple):
    function: FunctionType
    code: CodeType


@contextmanager
def preempted(at_line: Callable[[], object], modules: Sequence[str] = LINED) -> Generator[None]:
    """Have at_line() called before each statement of the functions of these modules, in the block.

    The collector rests meanwhile: threads of former worlds, which it ends, have statements, too.
    """
    found = [each for name in modules for each in _lined(importlib.import_module(name))]
    before = [(each.function, each.function.__code__) for each in found]
    spaces = [each.function.__globals__ for each in found]
    for space in spaces:
        space[_HOOK] = at_line
    for each in found:
        each.function.__code__ = each.code
    is_collecting = gc.isenabled()
    if is_collecting:
        gc.collect()
        gc.disable()
    try:
        yield
    finally:
        if is_collecting:
            gc.enable()
        for function, code in before:
            function.__code__ = code
        for space in spaces:
            space.pop(_HOOK, None)


def _lined(module: ModuleType) -> Iterator[_Lined]:
    """Yield a module's functions as they are now, each with the code that calls the hook.

    A planted fault may be in the place of one now, and not the next time. LookupError: one has no
    such code, so that it would be stopped nowhere.
    """
    path, codes = _hooked_codes(module)
    for function in _functions(module, module.__name__):
        old = function.__code__
        if old.co_filename != path:
            continue  # of another module, or written by a decorator
        code = codes.get((old.co_qualname, old.co_firstlineno))
        if code is None or code.co_freevars != old.co_freevars:
            raise LookupError(f"{module.__name__}: no code with lines for {old.co_qualname}")
        yield _Lined(function, code)


@cache
def _hooked_codes(module: ModuleType) -> tuple[str, dict[tuple[str, int], CodeType]]:
    """Return a module's path, and its code with the calls: by name and first line."""
    path = inspect.getsourcefile(module)
    assert path is not None
    tree = _Hooks().visit(ast.parse(inspect.getsource(module), path))
    made = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    return path, {(each.co_qualname, each.co_firstlineno): each for each in _codes(made)}


class _Hooks(ast.NodeTransformer):
    """Puts a call of the hook before each statement of functions."""

    def __init__(self) -> None:
        self._depth = 0

    def _function(self, node: Any) -> Any:
        """Pass over what is one statement: planning calls such, which is done once a process."""
        if len(node.body) - _has_docstring(node.body) < 2 and not hasattr(node.body[-1], "body"):
            return node
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815 - ast's names

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        depth, self._depth = self._depth, 0
        self.generic_visit(node)
        self._depth = depth
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if self._depth:
            for name in ("body", "orelse", "finalbody"):
                statements = getattr(node, name, None)
                if isinstance(statements, list) and statements:
                    setattr(node, name, [*self._hooked(statements)])
        return node

    def _hooked(self, statements: list[ast.stmt]) -> Iterator[ast.stmt]:
        for number, each in enumerate(statements):
            is_text = number == 0 and _has_docstring(statements)
            if not is_text and not isinstance(each, ast.Global | ast.Nonlocal):
                call = ast.Call(ast.Name(_HOOK, ast.Load()), [], [])
                yield ast.copy_location(ast.Expr(call), each)
            yield each


def _has_docstring(statements: list[ast.stmt]) -> bool:
    first = statements[0]
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _functions(owner: Any, module: str) -> Iterator[FunctionType]:
    """Yield the functions of a module and its classes, those behind decorators as well."""
    for each in list(vars(owner).values()):
        if inspect.isclass(each):
            if each.__module__ == module and each is not owner:
                yield from _functions(each, module)
            continue
        parts = [getattr(each, name, None) for name in ("fget", "fset", "__func__", "func")]
        for part in (each, *parts):
            found = inspect.unwrap(part) if callable(part) else part
            if isinstance(found, FunctionType) and found.__module__ == module:
                yield found
