"""A corpus of sqllogictest in the small, made here."""

from pathlib import Path

import pytest

from tests.slt.draw import TRIGGERS

_QUERIES = "query I\nSELECT {}\n----\n{}\n\n"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Two folders that are sampled, of 300 queries a file, and two that are not."""
    long = "".join(
        f"statement ok\nSELECT {n}\n\nskipif herdpy\n{_QUERIES.format(n, n)}"
        f"{_QUERIES.format(n, n)}{_QUERIES.format(n, n)}"
        for n in range(150)
    )
    short = "statement ok\nSELECT 1\n\n" + _QUERIES.format(1, 1)
    texts = {f"index/in/1/{n}.test": long for n in range(4)}
    texts |= {f"random/expr/{n}.test": long for n in range(4)}
    texts |= {"select1.test": short, "evidence/in.test": short}
    texts |= dict.fromkeys(TRIGGERS, short)
    for name, text in texts.items():
        path = tmp_path / "test" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "test"
