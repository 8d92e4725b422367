"""The files under examples/server say what the command line and the settings really have."""

import configparser
import json
import re
import shlex

import click

from herdpy.cli.app import app
from herdpy.cli.settings import load, names, variable
from tests.style.test_layers import ROOT

FOLDER = ROOT / "examples" / "server"


def check_command(words: list[str]) -> None:
    """Raise click.UsageError unless the command line takes these words."""
    context = click.Context(app, info_name="herdpy", **app.context_settings)
    app.commands[words[0]].make_context(words[0], words[1:], parent=context)


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string((FOLDER / "herdpy.service").read_text())
    return parser


def test_the_settings_are_known() -> None:
    text = (FOLDER / "herdpy.toml").read_text()
    loaded = load(file=text, where="herdpy.toml")
    assert "herdpy.toml" in loaded.origins.values()
    assert loaded.server.http_port == 7080


def test_the_unit() -> None:
    service = unit()["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/bin/herdpy")
    words.remove("--config")
    words.remove("/etc/herdpy/herdpy.toml")
    check_command(words)
    assert service["Type"] == "notify"
    loaded = load(file=(FOLDER / "herdpy.toml").read_text(), where="herdpy.toml")
    assert int(service["TimeoutStopSec"]) > loaded.server.drain_timeout_s


def test_the_image() -> None:
    text = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
    (command,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    check_command(json.loads(command))
    known = {variable(name) for name, _ in names()}
    assert set(re.findall(r"HERDPY_\w+", text)) <= known
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
    extras = set(re.findall(r"\.\[([\w,]+)\]", text)[0].split(","))
    assert extras <= set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.M))
    kept = (FOLDER / "Dockerfile.dockerignore").read_text()
    for name in ("pyproject.toml", "herdpy", "bookie"):
        assert f"!{name}\n" in kept


def test_the_compose_file() -> None:
    text = (FOLDER / "compose.yaml").read_text()
    commands = re.findall(r"command: (\[.*\])", text)
    assert len(commands) == 2
    for command in commands:
        check_command(json.loads(command))
    known = {variable(name) for name, _ in names()}
    assert set(re.findall(r"HERDPY_\w+", text)) <= known
    (dockerfile,) = re.findall(r"dockerfile: (\S+)", text)
    assert (ROOT / dockerfile).exists()


def test_a_wrong_command_is_found() -> None:
    for words in (["serve", "/data", "--prot", "1"], ["serve"], ["serve", "x", "--port", "z"]):
        try:
            check_command(words)
        except click.UsageError:
            continue
        raise AssertionError(words)
