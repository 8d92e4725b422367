"""The size that planning is limited by is that of DuckDB's text with its macros put in."""

import pytest

from herdpy.sql.macros import MACROS
from herdpy.sql.printed_size import printed_size
from tests.unit.herdpy.sql.test_planning_size import expanded_size, macro_parameters

# With a lambda, by another macro with one, with long constants.
OTHERS = (
    "h_upper", "h_unescaped", "h_bytea", "h_read_interval", "h_text_timestamptz", "h_real_texts",
    "h_text_real",
)  # fmt: skip
NAMES = [name for name in MACROS if name not in OTHERS]


@pytest.mark.parametrize("name", NAMES)
def test_macros_are_put_in(name: str) -> None:
    for width in (1, 7, 50):
        arguments = ", ".join(f"({'q' * width})" for _ in macro_parameters(name))
        text = f"SELECT {name}({arguments}) + 'a,h_sign(' FROM t"
        assert printed_size(text) == pytest.approx(expanded_size(text), rel=0.02, abs=5)


def test_the_body_of_a_lambda_counts_twice() -> None:
    body = "h_sign(v1) + 1"
    once = printed_size(f"list_transform([2], {body})")
    assert printed_size(f"list_transform([2], lambda v1: {body})") > once + printed_size(body)


def test_long_constants_count_in_part() -> None:
    assert printed_size(f"SELECT '{'a' * 100}'") == 109
    assert printed_size(f"SELECT '{'a' * 1_000_000}''b'") < 20_000
