"""Write docs/reference/*.md from the code: `python -m tests.style.generate_reference`.

test_docs.py compares what stands there with what this would write.
"""

import inspect
from dataclasses import fields

import click

from herdpy import errors, limits
from herdpy.cli.app import app
from herdpy.cli.shell import COMMANDS
from herdpy.config import Config
from tests.style.test_layers import ROOT

FOLDER = ROOT / "docs" / "reference"
NOTE = "Generated from `{source}` by `make reference`; do not edit.\n"


def config_page() -> str:
    lines = [
        "# Settings of a database",
        "",
        NOTE.format(source="herdpy/config.py"),
        "`memory_bytes_max` is an argument of `herdpy.connect()`; the others have their defaults.",
        "",
        "| setting | default | range | unit | meaning |",
        "|---|---:|---|---|---|",
    ]
    for item in fields(Config):
        meta = item.metadata
        lines.append(
            f"| `{item.name}` | {_number(item.default)} | {_number(meta['low'])} to "
            f"{_number(meta['high'])} | {meta['unit']} | {meta['why']} |"
        )
    return "\n".join(lines) + "\n"


def limits_page() -> str:
    lines = [
        "# Limits that nobody may tune",
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
    parts = [click.Context(part, top, name, **settings) for name, part in app.commands.items()]
    for context in (top, *parts):
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
    ]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    for power in (40, 30, 20, 10):
        if value and value % 2**power == 0:
            return f"{value >> power:,} {'KMGT'[power // 10 - 1]}i"
    return f"{value:,}"


PAGES = {
    "cli.md": cli_page,
    "config.md": config_page,
    "errors.md": errors_page,
    "limits.md": limits_page,
}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())
        print(f"wrote docs/reference/{name}")


if __name__ == "__main__":
    main()
