"""The base install as a user has it: a wheel in an environment of its own. make bare.

1. The wheel is built and installed with what it depends on, and nothing of the extras comes along.
2. Its description has no link to a file of the repository, which an index would not find.
3. Examples run there; the commands say which extra they need, and exit with 1.
4. The *.test files of SQL run there, before pandas, which brings packages of its own: what a query
   needs has to be in the base install.
5. tests/dbapi runs there, in memory, on directories and over TCP: the server is a process of the
   environment that runs this.

Ends with 1 when anything differs.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.fixtures.bare_install import BLOCKED, SERVER_PYTHON
from tests.style.test_layers import ROOT

_FOLDER = ROOT / ".venvs" / "bare"
_PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input")
_EXAMPLES = ("embedded.py", "transactions.py")
_COMMANDS = ((("herdpy", "serve", "x"), "server"), (("bookie", "local"), "bookie"))
_SUITES = (("runner", ("tests/sql/test_files.py", "-k", "local")), ("suite", ("tests/dbapi",)))
"""What runs with which extra, the least first."""
_RELATIVE_LINK = re.compile(r"\]\((?!https?:)[^)]*\)")


def run(*words: object, where: Path = ROOT, exit_code: int = 0, **variables: str) -> str:
    """Run a command; return what it printed. SystemExit: it ended otherwise than expected."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = list(map(str, words))
    ran = subprocess.run(
        command, cwd=where, capture_output=True, text=True, env=kept | variables, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    said = ran.stdout + ran.stderr
    if ran.returncode != exit_code:
        raise SystemExit(f"{' '.join(command)} ended with {ran.returncode}:\n{said[-8000:]}")
    return said


def main() -> None:
    shutil.rmtree(_FOLDER, ignore_errors=True)
    python = _FOLDER / "venv" / "bin" / "python"
    run(sys.executable, *_PIP, "wheel", "--no-deps", "-w", _FOLDER, ".")
    (wheel,) = _FOLDER.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        links = _RELATIVE_LINK.findall(archive.read(name).decode())
    if links:
        raise SystemExit(f"{wheel.name}: its description links to {links[0]}")
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")

    venv.create(_FOLDER / "venv", with_pip=True)
    before = _bytes(_FOLDER / "venv")
    run(python, *_PIP, "install", wheel)
    installed = run(python, *_PIP, "freeze").split()
    grown = (_bytes(_FOLDER / "venv") - before) / 1e6
    print(f"installed: {len(installed)} packages, {grown:.0f} MB")
    brought_by = packages_distributions()
    extras = {each for module in BLOCKED for each in brought_by[module.split(".")[0]]}
    unwanted = extras & {line.split("==")[0] for line in installed}
    if unwanted:
        raise SystemExit(f"the base install brings {', '.join(sorted(unwanted))}")

    with tempfile.TemporaryDirectory() as scratch:
        for example in _EXAMPLES:
            run(python, "-W", "error", ROOT / "examples" / example, where=Path(scratch))
        for command, extra in _COMMANDS:
            words = (python.parent / command[0], *command[1:])
            said = run(*words, where=Path(scratch), exit_code=1)
            if not said.endswith(f"-m pip install 'herdpy-db[{extra}]'\n"):
                raise SystemExit(f"{' '.join(command)} does not name its extra: {said}")
    print("examples run, and commands name their extras")

    for extra, suite in _SUITES:
        run(python, *_PIP, "install", f"{wheel}[{extra}]")
        plugin = ("-p", "tests.fixtures.bare_install")
        said = run(python, "-m", "pytest", "-q", *plugin, *suite, **{SERVER_PYTHON: sys.executable})
        print(f"{suite[0]}: {said.strip().splitlines()[-1]}")


def _bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_symlink())


if __name__ == "__main__":
    main()
