"""Write docs/reference/*.md from the code: `python -m tests.style.generate_reference`.

test_docs.py compares what stands there with what this would write.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import click

from bookie import config as bookie_config
from bookie import errors as bookie_errors
from bookie.admin.app import app as bookie_app
from bookie.management.access import HttpAccess
from bookie.management.cluster import ClusterOperations
from bookie.management.make import make_api
from bookie.management.openapi import document
from bookie.management.routing import Endpoint
from bookie.server.health import PAGES as HTTP_PAGES
from herdpy import errors, limits
from herdpy.cli.app import app
from herdpy.cli.shell import COMMANDS
from herdpy.config import Config, NodeConfig, ServerConfig
from tests.findings.judgement import marked_tests
from tests.pg_oracle.deviations import DEVIATIONS
from tests.style.python_reference import python_page
from tests.style.test_layers import ROOT

FOLDER = ROOT / "docs" / "reference"
NOTE = "Generated from `{source}` by `make reference`; do not edit.\n"


def config_page() -> str:
    lines = [
        "# Settings",
        "",
        NOTE.format(source="herdpy/config.py"),
        "`herdpy serve` takes them, in this order, from its options (`--port 7001`; any setting",
        "as `--set database.memory_bytes_max=2GiB`), from the environment",
        "(`HERDPY_SERVER_PORT`), from a TOML file (`--config FILE` or `HERDPY_CONFIG`) with the",
        "tables `[server]`, `[database]` and `[node]`, and from the defaults. `herdpy config show`",
        "prints all of them as such a file, each with where it comes from. A setting that there is",
        "not is an error. Sizes may have a unit (KiB, MiB, GiB, TiB). In process,",
        "`memory_bytes_max` is an argument of `herdpy.connect()`.",
    ]
    for section, what, kind in (
        ("server", "of a server", ServerConfig),
        ("database", "of an open database", Config),
        ("node", "of a node of a cluster (`herdpy node`)", NodeConfig),
    ):
        lines += [
            "",
            f"## [{section}]: {what}",
            "",
            "| setting | default | range | unit | meaning |",
        ]
        lines += ["|---|---:|---|---|---|"]
        for item in fields(kind):
            meta = item.metadata
            if meta["unit"] == "text":
                default, span = f"`{item.default}`", ", ".join(meta["choices"])
            else:
                default = _number(item.default)
                span = f"{_number(meta['low'])} to {_number(meta['high'])}"
            lines.append(f"| `{item.name}` | {default} | {span} | {meta['unit']} | {meta['why']} |")
    return "\n".join(lines) + "\n"


def limits_page() -> str:
    lines = [
        "# Limits that cannot be tuned",
        "",
        NOTE.format(source="herdpy/limits.py"),
        "| limit | value |",
        "|---|---:|",
    ]
    for name, value in vars(limits).items():
        if isinstance(value, int) and not name.startswith("_"):
            lines.append(f"| `{name}` | {_number(value)} |")
    return "\n".join(lines) + "\n"


def errors_page() -> str:
    lines = [
        "# Errors",
        "",
        NOTE.format(source="herdpy/errors.py"),
        "Every error has `.sqlstate`, `.retry`, `.hint` and `.position` (1-based, in the",
        "statement's text; None when it is about no place). A single error may carry a more",
        "exact SQLSTATE than its class, always one of PostgreSQL's.",
        "",
        "| class | inherits | SQLSTATE | retry | meaning |",
        "|---|---|---|---|---|",
    ]
    for name, kind in vars(errors).items():
        if not inspect.isclass(kind) or not issubclass(kind, errors.Error):
            continue
        summary = " ".join(str(inspect.getdoc(kind)).split("\n\n")[0].split())
        lines.append(
            f"| `{name}` | `{kind.__bases__[0].__name__}` | {kind.default_sqlstate} | "
            f"{kind.default_retry.name} | {summary} |"
        )
    lines += ["", "| retry | what a program may do |", "|---|---|"]
    meanings = {
        errors.Retry.SAFE: "the statement had no effect: run it (or its transaction) again",
        errors.Retry.NEVER: "the same words fail again: change something first",
        errors.Retry.UNKNOWN: "it may have happened: look before repeating",
    }
    lines += [f"| {choice.name} | {meanings[choice]} |" for choice in errors.Retry]
    return "\n".join(lines) + "\n"


def cli_page() -> str:
    lines = [
        "# The command line",
        "",
        NOTE.format(source="herdpy/cli/"),
        "Exit codes: 0 all went well, 1 a statement or the database failed, 2 wrong usage. Results",
        "go to standard output, errors to standard error. Into a file or a pipe nothing is cut to",
        "a width, unless COLUMNS is set. The history of what was typed is in",
        "`$XDG_STATE_HOME/herdpy/history` (default below `~/.local/state`), never in the database.",
    ]
    settings = {"terminal_width": 96, **app.context_settings}
    top = click.Context(app, info_name="herdpy", **settings)
    for context in _commands(top, **settings):
        text = context.get_help()
        lines += ["", f"## {context.command_path}", "", "```text", text, "```"]
    lines += ["", "## In the shell", "", "| command | meaning |", "|---|---|"]
    for name, shell_command in COMMANDS.items():
        usage = f"{name} {shell_command.usage}".rstrip().replace("|", "\\|")
        lines.append(f"| `{usage}` | {shell_command.help} |")
    lines += [
        "",
        "Statements end with `;` and may take several lines. Each commits by itself; after BEGIN",
        "the prompt is `herdpy*>`, and what is still open at the end is rolled back. Tab completes",
        "names and keywords. Ctrl-C stops the statement that runs, or drops the line.",
        "",
        "CSV, written by `.mode csv` and read by `.import`, is PostgreSQL's: NULL is an empty",
        'field, an empty text is `""`, and quotes in a field are doubled. The first line has the',
        "columns' names; columns of the table that it does not name take their defaults. The file",
        "is UTF-8, lines end with LF or CRLF. `.import` inserts all rows or, on an error, none,",
        "and names the line; in a transaction it is one of its statements. A FILE with spaces",
        "stands in quotes.",
    ]
    return "\n".join(lines) + "\n"


def bookie_cli_page() -> str:
    lines = [
        "# The bookie command",
        "",
        NOTE.format(source="bookie/admin/"),
        "Exit codes: 0 all went well, 1 it failed, 2 wrong usage, 3 `bookies at-risk`:",
        "not safe to leave, 130 stopped by Ctrl-C. Results",
        "go to standard output, errors and progress to standard error. With `--json` a command",
        "prints one JSON value a line (bytes are base64), and an error as",
        '`{"error", "code", "retry", "message"}`, with the code of Apache\'s BKException.',
    ]
    settings = {"terminal_width": 96, **bookie_app.context_settings}
    for context in _commands(click.Context(bookie_app, info_name="bookie", **settings)):
        lines += ["", f"## {context.command_path}", "", "```text", context.get_help(), "```"]
    return "\n".join(lines) + "\n"


def _commands(context: click.Context, **settings: Any) -> Iterator[click.Context]:
    context.command._help_option = None  # click keeps that of the first context
    yield context
    settings.setdefault("terminal_width", 96)
    if isinstance(context.command, click.Group):
        for name, part in sorted(context.command.commands.items()):
            yield from _commands(click.Context(part, context, name, **settings), **settings)


def bookie_config_page() -> str:
    lines = [
        "# Settings of bookies and ledger clients",
        "",
        NOTE.format(source="bookie/config.py"),
        "`bookie serve --set NAME=VALUE` sets those of a bookie, `--set-autorecovery NAME=VALUE`",
        "(or `bookie autorecovery --set NAME=VALUE`) those of AutoRecovery; a client is given a",
        "`ClientConfig`. An empty meaning is in the name. Ranges are checked when they are made.",
    ]
    for node in ast.parse(inspect.getsource(bookie_config)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        lines += ["", f"## {node.name}", "", "| setting | default | meaning |", "|---|---:|---|"]
        for index, item in enumerate(node.body):
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                default = getattr(getattr(bookie_config, node.name)(), item.target.id)
                is_number = isinstance(default, int | float) and not isinstance(default, bool)
                shown = _number(default) if is_number else f"`{default}`"
                lines.append(f"| `{item.target.id}` | {shown} | {_text_after(node.body, index)} |")
    return "\n".join(lines) + "\n"


def _text_after(body: list[ast.stmt], index: int) -> str:
    """Return the docstring that follows a field, on one line."""
    following = body[index + 1] if index + 1 < len(body) else None
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        return " ".join(str(following.value.value).split())
    return ""


def bookie_errors_page() -> str:
    lines = [
        "# Errors of bookies and ledger clients",
        "",
        NOTE.format(source="bookie/errors.py"),
        "`code` is that of Apache BookKeeper's BKException; `retry` is as in [errors](errors.md).",
        "",
        "| class | inherits | code | retry | meaning |",
        "|---|---|---:|---|---|",
    ]
    for name, kind in vars(bookie_errors).items():
        if inspect.isclass(kind) and issubclass(kind, bookie_errors.BookieError):
            summary = " ".join(str(inspect.getdoc(kind)).split("\n\n")[0].split())
            parents = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
            lines.append(f"| `{name}` | {parents} | {kind.code} | {kind.retry.name} | {summary} |")
    return "\n".join(lines) + "\n"


def bookie_endpoints() -> tuple[Endpoint, ...]:
    """Return the endpoints of the management API; none may be called."""
    nothing: Any = None
    cluster = ClusterOperations(nothing, "/ledgers", nothing, nothing)
    return make_api(HttpAccess(), cluster, bookie_config.BookieConfig(), "").endpoints


def bookie_http_page() -> str:
    lines = [
        "# The management API of bookies and AutoRecovery",
        "",
        NOTE.format(source="bookie/management/"),
        "How to serve and ask it: [the guide](../guides/bookie-http.md). The same as OpenAPI 3.1:",
        "[bookie-openapi.json](bookie-openapi.json), which a process serves at `/openapi.json`.",
        "Arguments in bold are needed; those of GET and DELETE, and `enabled`, stand in the query,",
        "all others are names of a JSON object in the body.",
        "",
        "| request | role | arguments | is |",
        "|---|---|---|---|",
    ]
    lines += [f"| GET `{path}` | | | {summary} |" for path, summary in HTTP_PAGES.items()]
    for one in bookie_endpoints():
        arguments = [
            f"{f'**`{a.name}`**' if a.is_required else f'`{a.name}`'} ({a.kind.value}): {a.meaning}"
            for a in (*one.query, *one.body)
        ]
        lines.append(
            f"| {one.method} `{one.path}` | {one.role.name.lower()} | {' '.join(arguments)} | "
            f"{one.summary} |"
        )
    return "\n".join(lines) + "\n"


def bookie_openapi_page() -> str:
    return json.dumps(document(bookie_endpoints(), HTTP_PAGES), indent=1) + "\n"


def findings_page() -> str:
    lines = [
        "# Findings and their tests",
        "",
        NOTE.format(source="tests/findings/"),
        "A finding is a defect that was seen by running, under an id that its test names: S is",
        "about security, D about damage and disks, E about the engine's memory, Q about SQL, N",
        "about a newcomer's first hour, H about code and tests, K about Spark, R about lost",
        "connections and their passwords. Each test fails on the commit where the finding was made",
        "and passes here: `make findings OLD=<commit>` runs both.",
        "",
        "| id | test | what it shows |",
        "|---|---|---|",
    ]
    for each in marked_tests():
        title = each.title.rstrip(".").replace("|", "\\|")
        lines.append(f"| {each.id} | `{each.test}` | {title} |")
    return "\n".join(lines) + "\n"


def sql_page() -> str:
    """Return the page of SQL with its last section, what differs from PostgreSQL, anew."""
    page, heading, _ = (
        (FOLDER / "sql.md").read_text().partition("## What differs from PostgreSQL\n")
    )
    lines = [
        page + heading.rstrip(),
        "",
        "The closed list, from `tests/pg_oracle/deviations.py` by `make reference`, each with its",
        "reason. `make pg-oracle` runs generated SQL on herdpy and on PostgreSQL: nothing else",
        "differs.",
        "",
    ]
    for each in DEVIATIONS:
        text = f"- {each.rule} *{each.reason}*"
        lines.append(textwrap.fill(text, 120, subsequent_indent="  ", break_on_hyphens=False))
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    for power in (40, 30, 20, 10):
        if value and value % 2**power == 0:
            return f"{value >> power:,} {'KMGT'[power // 10 - 1]}i"
    return f"{value:,}"


PAGES = {
    "bookie-cli.md": bookie_cli_page,
    "bookie-config.md": bookie_config_page,
    "bookie-errors.md": bookie_errors_page,
    "bookie-http.md": bookie_http_page,
    "bookie-openapi.json": bookie_openapi_page,
    "cli.md": cli_page,
    "config.md": config_page,
    "errors.md": errors_page,
    "findings.md": findings_page,
    "limits.md": limits_page,
    "python.md": python_page,
    "sql.md": sql_page,
}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())
        print(f"wrote docs/reference/{name}")


if __name__ == "__main__":
    main()
