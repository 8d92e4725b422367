"""A plugin of pytest that writes how each test marked `finding` ended, as JSON.

It is loaded on an older commit as well, beside nothing else of tests/. The document is
{"tests": [Outcome, ...], "broken": ["test_x.py: what its import raised", ...]}.
"""

import json
from pathlib import Path
from typing import Any

import pytest

_FOLDER = Path(__file__).parent
_collected: dict[str, dict[str, Any]] = {}
_broken: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, help="where the JSON document is written")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    raised, is_in_test, reason = "", False, ""
    if call.excinfo is not None:
        raised = call.excinfo.type.__name__
        is_in_test = call.excinfo.traceback[-1].path == item.path
        reason = (str(call.excinfo.value).strip() or raised).splitlines()[0][:200]
    # Attributes of a report travel from the processes of pytest-xdist to the one that writes.
    report.finding = {
        "test": f"{_name(item.path)}::{item.nodeid.partition('::')[2]}",
        "ids": sorted({name for mark in item.iter_markers("finding") for name in mark.args}),
        "phase": report.when,
        "outcome": "xfailed" if hasattr(report, "wasxfail") else report.outcome,
        "raised": raised,
        "is_in_test": is_in_test,
        "reason": reason,
    }
    return report


def pytest_runtest_logreport(report: Any) -> None:
    found = getattr(report, "finding", None)
    if found is None:
        return
    before = _collected.get(found["test"])
    # The first phase that did not pass says how the test ended; else the call does.
    if before is None or (before["outcome"] == "passed" and found["outcome"] != "passed"):
        _collected[found["test"]] = found


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
        text = (lines or report.longreprtext.splitlines())[-1].removeprefix("E").strip()
        _broken.append(f"{Path(report.nodeid).name}: {text[:200]}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--outcomes")
    if path is not None and not hasattr(session.config, "workerinput"):
        document = {"tests": list(_collected.values()), "broken": sorted(set(_broken))}
        path.write_text(json.dumps(document, indent=1) + "\n")


def _name(path: Path) -> str:
    return path.relative_to(_FOLDER).as_posix() if path.is_relative_to(_FOLDER) else path.name
