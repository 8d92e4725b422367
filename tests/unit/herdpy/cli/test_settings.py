"""Settings of a server: one model from file, environment and flags, and what is refused."""

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from herdpy.cli.app import app
from herdpy.cli.settings import load, load_here, names, variable
from herdpy.config import MIB, Config, ServerConfig
from herdpy.errors import OperationalError, ProgrammingError

FILE = """
[server]
port = 7001
drain_timeout_s = 3
log_format = "json"

[database]
memory_bytes_max = "64MiB"
cache_share = 0.1
"""


def refusal(**sources: Any) -> ProgrammingError:
    with pytest.raises(ProgrammingError) as caught:
        load(**sources)
    assert caught.value.sqlstate == "22023"
    return caught.value


def test_defaults() -> None:
    loaded = load()
    assert (loaded.server, loaded.database) == (ServerConfig(), Config())
    assert set(loaded.origins.values()) == {"default"}


def test_later_sources_win() -> None:
    environment = {"HERDPY_SERVER_PORT": "7002", "HERDPY_SERVER_HOST": "::1", "HERDPY_SEED": "1"}
    loaded = load(
        file=FILE, where="h.toml", environment=environment, flags={"server.host": "localhost"}
    )
    assert loaded.server.port == 7002
    assert loaded.server.host == "localhost"
    assert loaded.server.drain_timeout_s == 3
    assert loaded.server.log_format == "json"
    assert loaded.database.memory_bytes_max == 64 * MIB
    assert loaded.database.cache_share == 0.1
    origins = {name: where for name, where in loaded.origins.items() if where != "default"}
    assert origins == {
        "server.port": "environment",
        "server.host": "flag",
        "server.drain_timeout_s": "h.toml",
        "server.log_format": "h.toml",
        "database.memory_bytes_max": "h.toml",
        "database.cache_share": "h.toml",
    }


def test_what_is_shown_reads_back() -> None:
    loaded = load(file=FILE, where="h.toml", flags={"server.http_host": 'a"b\\c\n\x7fü'})
    shown = loaded.shown()
    again = load(file=shown, where="shown")
    assert (again.server, again.database) == (loaded.server, loaded.database)
    assert set(again.origins.values()) == {"shown"}
    assert set(tomllib.loads(shown)["server"]) == {item.name for item in fields(ServerConfig)}
    assert "# h.toml" in shown


def test_every_setting_has_a_variable() -> None:
    for name, item in names():
        text = str(item.default)
        loaded = load(environment={variable(name): text})
        assert loaded.origins[name] == "environment"
        section, _, field = name.partition(".")
        # Tests have another default of a reserve (tests/conftest.py).
        given: dict[str, Any] = {field: item.default} if section == "database" else {}
        assert (loaded.server, loaded.database) == (ServerConfig(), Config(**given))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("[server]\nprot = 1", "h.toml: there is no setting 'server.prot'"),
        ("[sever]\nport = 1", "h.toml: there is no table 'sever'"),
        ("port = 1", "h.toml: there is no table 'port'"),
        ("[server]\nport = 'x'", "h.toml: server.port: expected a whole number"),
        ("[server]\nport = 1.5", "h.toml: server.port: expected a whole number"),
        ("[server]\nport = true", "h.toml: server.port: expected a number, found True"),
        ("[server]\nport = 65536", "h.toml: server.port: expected 0 to 65535 port, found 65536"),
        ("[server]\nport = []", "h.toml: server.port: expected a number"),
        ("[server]\nhost = 5", "h.toml: server.host: expected text"),
        ("[server]\nlog_level = 'loud'", "h.toml: server.log_level: expected one of debug,"),
        ("[server]\ndrain_timeout_s = 'nan'", "h.toml: server.drain_timeout_s: expected 0 to"),
        ("[server]\nport = '7MiBs'", "h.toml: server.port: expected a whole number"),
        ("[database]\nmemtable_share = 0.8", "memtable_share + cache_share"),
        ("[server", "h.toml: not TOML"),
    ],
)
def test_wrong_files(file: str, message: str) -> None:
    assert message in refusal(file=file, where="h.toml").message


def test_wrong_variables_and_flags() -> None:
    error = refusal(environment={"HERDPY_SERVER_PROT": "1"})
    assert "there is no setting 'HERDPY_SERVER_PROT'" in error.message
    assert error.hint == "Did you mean HERDPY_SERVER_PORT?"
    error = refusal(environment={"HERDPY_DATABASE_CACHE_SHARE": "much"})
    assert "environment: HERDPY_DATABASE_CACHE_SHARE: expected a number" in error.message
    error = refusal(flags={"server.conections_max": "5"})
    assert error.hint == "Did you mean server.connections_max?"


def test_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "h.toml"
    file.write_text(FILE)
    loaded = load_here(file, ["database.cache_share = 0.15"], {}, {"port": 5, "host": None})
    assert (loaded.server.port, loaded.database.cache_share) == (5, 0.15)
    with pytest.raises(ProgrammingError, match="NAME=VALUE"):
        load_here(None, ["x"], {}, {})
    with pytest.raises(OperationalError, match=r"none\.toml cannot be read"):
        load_here(tmp_path / "none.toml", [], {}, {})


def test_config_show(tmp_path: Path) -> None:
    file = tmp_path / "h.toml"
    file.write_text(FILE)
    arguments = ["config", "show", "--config", str(file), "--workers", "3", "--slow-statement", "2"]
    ran = CliRunner().invoke(app, arguments, env={"HERDPY_SERVER_HTTP_PORT": "0"})
    assert ran.exit_code == 0, ran.output
    server = tomllib.loads(ran.output)["server"]
    assert (server["port"], server["workers"], server["http_port"]) == (7001, 3, 0)
    assert server["slow_statement_s"] == 2.0
    ran = CliRunner().invoke(app, ["config", "show"], env={"HERDPY_CONFIG": str(file)})
    assert tomllib.loads(ran.output)["server"]["port"] == 7001
    assert CliRunner().invoke(app, ["config", "show", "--port", "-1"]).exit_code == 2
    ran = CliRunner().invoke(app, ["config", "show", "--set", "server.port=x"])
    assert ran.exit_code == 1
    assert "server.port" in ran.output
