"""Settings from a file, the environment and flags: one model, later ones win, each with its origin.

The file is TOML with the tables [server], [database] and [node]; HERDPY_SERVER_PORT is server.port.
What is not known is an error with a suggestion: a misspelt limit is no limit.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from herdpy.config import Config, NodeConfig, ServerConfig
from herdpy.errors import OperationalError, ProgrammingError, did_you_mean

SECTIONS: dict[str, type[Any]] = {
    "server": ServerConfig,
    "database": Config,
    "node": NodeConfig,
}
PREFIX = "HERDPY_"
CONFIG_VARIABLE = "HERDPY_CONFIG"
"""Names the file, where no flag does."""
DEFAULT = "default"

_SIZE = re.compile(r"(\d+)\s*(KiB|MiB|GiB|TiB)")
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@dataclass(frozen=True, slots=True)
class Loaded:
    """All settings, and where each comes from, by name ("server.port")."""

    server: ServerConfig
    database: Config
    node: NodeConfig
    origins: Mapping[str, str]

    def shown(self) -> str:
        """Return them as TOML that reads back as the same, each with its origin."""
        lines: list[str] = []
        sections = {"server": self.server, "database": self.database, "node": self.node}
        for section, config in sections.items():
            lines += ["", f"[{section}]"] if lines else [f"[{section}]"]
            for item in fields(config):
                setting = f"{item.name} = {_toml(getattr(config, item.name))}"
                lines.append(f"{setting:<44}  # {self.origins[f'{section}.{item.name}']}")
        return "\n".join(lines) + "\n"


def variable(name: str) -> str:
    """Return the environment variable of a setting: server.port → HERDPY_SERVER_PORT."""
    return PREFIX + name.replace(".", "_").upper()


def names() -> Iterator[tuple[str, Field[Any]]]:
    """Yield every setting, as section.field."""
    for section, kind in SECTIONS.items():
        for item in fields(kind):
            yield f"{section}.{item.name}", item


def load(
    *,
    file: str | None = None,
    where: str = "",
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Loaded:
    """Return the settings: flags over environment over the file's text over defaults.

    `where` names the file in messages. ProgrammingError 22023: what is unknown, of another type or
    out of range.
    """
    known = dict(names())
    values: dict[str, object] = {}
    origins = dict.fromkeys(known, DEFAULT)

    def put(name: str, value: object, origin: str, spelled: str) -> None:
        item = known.get(name)
        if item is None:
            raise _unknown(spelled, origin, [*map(_spelling(spelled), known)])
        values[name] = _read(item, value, f"{origin}: {spelled}")
        origins[name] = origin

    for name, value in _from_file(file, where):
        put(name, value, where, name)
    spelled = {variable(name): name for name in known}
    for name, value in sorted((environment or {}).items()):
        if name.startswith(tuple(f"{PREFIX}{section.upper()}_" for section in SECTIONS)):
            put(spelled.get(name, ""), value, "environment", name)
    for name, value in (flags or {}).items():
        put(name, value, "flag", name)
    made = {section: _make(section, kind, values, origins) for section, kind in SECTIONS.items()}
    return Loaded(made["server"], made["database"], made["node"], origins)


def _from_file(file: str | None, where: str) -> Iterator[tuple[str, object]]:
    if file is None:
        return
    try:
        tables = tomllib.loads(file)
    except tomllib.TOMLDecodeError as error:
        raise ProgrammingError(f"{where}: not TOML: {error}", sqlstate="22023") from None
    for section, table in tables.items():
        if not isinstance(table, dict) or section not in SECTIONS:
            raise _unknown(section, where, [*SECTIONS], "table")
        for name, value in table.items():
            yield f"{section}.{name}", value


def _read(item: Field[Any], value: object, where: str) -> object:
    """Return a value of the field's type; text stands for any, sizes may have a unit."""
    kind = type(item.default)
    if kind is int and isinstance(value, float):
        raise ProgrammingError(
            f"{where}: expected a whole number, found {value!r}", sqlstate="22023"
        )
    if not isinstance(value, str) or kind is str:
        return value
    size = _SIZE.fullmatch(value.strip())
    if size is not None and kind is int:
        return int(size[1]) * _UNITS[size[2]]
    try:
        return kind(value.replace("_", ""))
    except ValueError:
        wanted = "a whole number or a size such as 64MiB" if kind is int else "a number"
        raise ProgrammingError(
            f"{where}: expected {wanted}, found {value[:100]!r}", sqlstate="22023"
        ) from None


def _make(
    section: str, kind: type[Any], values: Mapping[str, object], origins: Mapping[str, str]
) -> Any:
    chosen = {
        name.removeprefix(f"{section}."): value
        for name, value in values.items()
        if name.startswith(f"{section}.")
    }
    try:
        return kind(**chosen)
    except (TypeError, ValueError) as error:
        named = str(error).split(":")[0]
        origin = origins.get(f"{section}.{named}", DEFAULT)
        raise ProgrammingError(f"{origin}: {section}.{error}", sqlstate="22023") from None


def _spelling(spelled: str) -> Any:
    return variable if spelled.startswith(PREFIX) else str


def _unknown(name: str, where: str, known: list[str], what: str = "setting") -> ProgrammingError:
    return ProgrammingError(
        f"{where}: there is no {what} {name[:100]!r}",
        sqlstate="22023",
        hint=did_you_mean(name, known, "`herdpy config show` lists them."),
    )


def _toml(value: object) -> str:
    if isinstance(value, str):
        text = value.encode(errors="replace").decode()
        return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
    return repr(value)


# --- the command line ----------------------------------------------------------------------------

Command = TypeVar("Command", bound=Callable[..., Any])


def setting_options(command: Command) -> Command:
    """Give a command --config, --set and an option for each setting of a server; see load_here."""
    return _options_of(command, "server")


def node_options(command: Command) -> Command:
    """Give a command the same, and an option for each setting of a node."""
    return _options_of(command, "server", "node")


def _options_of(command: Command, *sections: str) -> Command:
    options = [
        click.option(
            "--config",
            type=click.Path(dir_okay=False, path_type=Path),
            envvar=CONFIG_VARIABLE,
            show_envvar=True,
            help="Read settings from this TOML file.",
        ),
        click.option(
            "--set",
            "assignments",
            multiple=True,
            metavar="NAME=VALUE",
            help="Set anything, such as database.memory_bytes_max=2GiB.",
        ),
        *(_option(item) for section in sections for item in fields(SECTIONS[section])),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _option(item: Field[Any]) -> Callable[[Command], Command]:
    meta, default = item.metadata, item.default
    is_time = meta["unit"] == "seconds"
    kind: click.ParamType
    if meta["unit"] == "text":
        kind = click.Choice(meta["choices"]) if meta["choices"] else click.STRING
    elif isinstance(default, int):
        kind = click.IntRange(meta["low"], meta["high"])
    else:
        kind = click.FloatRange(meta["low"], meta["high"])
    shown = f"{default:g}" if isinstance(default, float) else default
    return click.option(
        f"--{item.name.removesuffix('_s' if is_time else '').replace('_', '-')}",
        item.name,
        type=kind,
        metavar="SECONDS" if is_time else None,
        help=f"{meta['why'][0].upper()}{meta['why'][1:]}.  [default: {shown}]",
    )


def load_here(
    config: Path | None,
    assignments: Sequence[str],
    environment: Mapping[str, str],
    chosen: Mapping[str, object],
) -> Loaded:
    """Return the settings of a command with setting_options; `chosen` are its other options."""
    flags: dict[str, object] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            raise ProgrammingError(
                f"--set: expected NAME=VALUE, found {text[:100]!r}", sqlstate="22023"
            )
        flags[name.strip()] = value.strip()
    of_node = {item.name for item in fields(NodeConfig)}
    for name, value in chosen.items():
        if value is not None:
            flags[f"{'node' if name in of_node else 'server'}.{name}"] = value
    try:
        file = None if config is None else config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OperationalError(f"{config} cannot be read: {error}", sqlstate="58P01") from None
    return load(file=file, where=str(config), environment=environment, flags=flags)
