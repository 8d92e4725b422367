"""Commands of `herdpy`, run in this process: what they print."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import herdpy
from herdpy.cli.app import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("name", ["[red]", "[b] :smile:", "x[/y]", "100_000 'a' http:"])
def test_paths_are_printed_as_they_are(tmp_path: Path, name: str) -> None:
    source = tmp_path / name / "data"
    source.parent.mkdir(parents=True)
    with herdpy.connect(str(source)) as conn:
        conn.execute("CREATE TABLE t (a INTEGER)")
    backup, restored = f"{source}.backup", f"{source}.restored"
    for arguments, said in (
        (("backup", str(source), backup), f"backed up {source} to {backup}: "),
        (("restore", backup, restored), f"restored {backup} to {restored}"),
    ):
        result = run(*arguments)
        assert result.exit_code == 0, result.output
        assert said in result.output
