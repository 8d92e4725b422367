"""The table that conn.sql() prints."""

import datetime
import re
from decimal import Decimal

from rich.cells import cell_len

import herdpy
from herdpy.driver.box import display, readable, render
from herdpy.driver.types import describe
from herdpy.model import types

COLUMNS = [describe("id", types.BIGINT), describe("name", types.TEXT)]


def test_golden() -> None:
    text = render(COLUMNS, [(1, "ant"), (20, None)], width=40)
    assert text == (
        "╭────────┬──────╮\n"
        "│     id │ name │\n"
        "│ bigint │ text │\n"
        "├────────┼──────┤\n"
        "│      1 │ ant  │\n"
        "│     20 │ NULL │\n"
        "╰────────┴──────╯"
    )


def test_never_wider_than_asked() -> None:
    columns = [describe(f"column_{n}", types.TEXT) for n in range(60)]
    text = render(columns, [["x" * 50] * 60], width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" in text
    assert "colu" in text


def test_first_and_last_column_stay() -> None:
    columns = [describe(f"c{n}", types.INTEGER) for n in range(60)]
    text = render(columns, [range(60)], width=80)
    assert re.fullmatch(r"[1-5]\d of 60 columns left out at …", text.splitlines()[-1])
    assert "c0 " in text
    assert "c59 " in text


def test_markup_is_text() -> None:
    assert "[bold]x[/bold]" in render(COLUMNS, [(1, "[bold]x[/bold]")], width=60)


def test_control_characters_never_reach_the_terminal() -> None:
    for evil in ("\x1b]0;owned\x07", "a\nb", "\x9b31m", "\u202e", "\ud800"):
        text = render([describe(evil, types.TEXT)], [(evil,)], width=80)
        assert all(line.isprintable() for line in text.splitlines()), ascii(evil)
    assert display("a\nb") == "a\\nb"


def test_values() -> None:
    assert display(None) == "NULL"
    assert display(True) == "true"
    assert display(1.5) == "1.5"
    assert display(Decimal("1.50")) == "1.50"
    assert display(b"\x00\xff") == "\\x00ff"
    assert display(bytes(100)) == "\\x" + "00" * 24 + "…"
    assert display(datetime.date(2013, 1, 2)) == "2013-01-02"
    assert display(datetime.datetime(2013, 1, 2, 3, 4, 5)) == "2013-01-02 03:04:05"


def test_a_real_shows_its_own_digits() -> None:
    description = [describe("r", types.REAL), describe("d", types.DOUBLE)]
    tenth = 0.10000000149011612
    rows = [(tenth, tenth), (None, None), (float("nan"), float("-inf")), (1e10, 0.1)]
    shown = [(0.1, tenth), (None, None), (float("nan"), float("-inf")), (1e10, 0.1)]
    assert repr([tuple(row) for row in readable(description, rows)]) == repr(shown)
    assert "│  0.1 │ 0.10000000149011612 │" in render(description, rows[:1], width=80)


def test_no_rows() -> None:
    assert render(COLUMNS, [], width=40).count("\n") == 4


def test_numbers_are_never_cut() -> None:
    columns = [
        describe("a", types.TEXT),
        describe("an_id", types.BIGINT),
        describe("b", types.TEXT),
    ]
    text = render(columns, [("x" * 80, 2**62, "y" * 80)], width=50)
    assert str(2**62) in text
    assert max(map(len, text.splitlines())) <= 50
    assert "xxx…" in text
    assert "yyy…" in text


def test_short_text_keeps_its_width_when_long_text_is_cut() -> None:
    columns = [describe("a", types.TEXT), describe("b", types.TEXT)]
    text = render(columns, [("short", "y" * 80)], width=40)
    assert " short " in text
    assert max(map(len, text.splitlines())) == 40


def test_wide_characters_count_twice() -> None:
    text = render([describe("a", types.TEXT)], [("語" * 40,)], width=30)
    assert max(map(cell_len, text.splitlines())) <= 30


def test_long_results_say_so() -> None:
    with herdpy.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE n (n BIGINT PRIMARY KEY)")
        connection.executemany("INSERT INTO n VALUES (?)", [(n,) for n in range(100)])
        shown = str(connection.sql("SELECT n FROM n"))
        assert shown.endswith("the first 40 rows; there are more")
        assert str(connection.sql("SELECT n FROM n WHERE n < 40")).endswith("\n40 rows")
        assert str(connection.sql("DELETE FROM n WHERE n = 1")) == "1 row"


def test_html() -> None:
    with herdpy.connect(autocommit=True) as connection:
        box = connection.sql("SELECT 1 AS n, '<b>' AS t, CAST(NULL AS TEXT) AS x")
        html = box._repr_html_()
        assert '<th style="text-align:right">n<br><small>integer</small></th>' in html
        assert '<td style="text-align:left">&lt;b&gt;</td>' in html
        assert "<i>NULL</i>" in html
        assert html.endswith("<p>1 row</p>")
        assert list(box) == [(1, "<b>", None)]
