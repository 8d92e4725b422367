"""What commands print, and how errors end them."""

import json

import pytest

from bookie.admin.output import Output, bytes_text, printable
from bookie.errors import NotEnoughBookiesError, WriteError


def test_json_is_one_value_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(is_json=True)
    output.record({"a": 1, "b": b"\xff\x00"}, "for a terminal")
    output.records([{"n": 1}, {"n": None}], ("n",), "none")
    output.say("for a terminal")
    lines = capsys.readouterr().out.splitlines()
    assert list(map(json.loads, lines)) == [{"a": 1, "b": "/wA="}, {"n": 1}, {"n": None}]


def test_people_get_tables_and_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(is_json=False)
    output.record({"a": 1}, "a sentence [with brackets]")
    output.record({"is_open": True, "names": ["x", "y"]})
    output.records([], ("n",), "there are none")
    output.records([{"n": 7, "who": b"text"}], ("n", "who"), "none")
    printed = capsys.readouterr().out
    assert "a sentence [with brackets]" in printed
    assert "there are none" in printed
    assert "is open yes" in printed
    assert "text" in printed


@pytest.mark.parametrize(
    "text", ["0: [true,false] :smile:", "[/tmp/x] is gone", "bookie [fd00::1]:3181", "\\[b]x[/]"]
)
def test_what_is_printed_is_no_markup(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Entries of ledgers, ids and reasons may hold any of it."""
    output = Output(is_json=False)
    output.record({}, text)
    output.say(text)
    output.record({"": text})
    output.warn(text)
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [text, text, f" {text}"]
    assert captured.err == f"{text}\n"


@pytest.mark.parametrize("is_json", [True, False])
def test_an_error_is_a_sentence_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], *, is_json: bool
) -> None:
    with pytest.raises(SystemExit) as caught, Output(is_json=is_json).exits():
        raise NotEnoughBookiesError("3 are needed, there are [2]")
    assert caught.value.code == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    if is_json:
        assert json.loads(captured.err) == {
            "error": "NotEnoughBookiesError",
            "code": -6,
            "retry": "safe",
            "message": "3 are needed, there are [2]",
        }
    else:
        assert captured.err.splitlines() == [
            "error: 3 are needed, there are [2] (NotEnoughBookiesError, -6)",
            "hint: nothing was changed; it may work later",
        ]


def test_an_error_of_unknown_effect_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), Output(is_json=False).exits():
        raise WriteError("no quorum")
    assert "it may have happened" in capsys.readouterr().err


def test_ctrl_c_is_130() -> None:
    with pytest.raises(SystemExit) as caught, Output(is_json=False).exits():
        raise KeyboardInterrupt
    assert caught.value.code == 130


def test_a_reader_that_has_enough_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """`bookie … --json | head -1`: click ends it without a word."""
    with pytest.raises(BrokenPipeError), Output(is_json=True).exits():
        raise BrokenPipeError(32, "Broken pipe")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"text", "text"), ("süß".encode(), "süß"), (b"\xff", "0xff"), (b"a\nb", "0x610a62")],
)
def test_bytes_are_text_when_printable(data: bytes, text: str) -> None:
    assert printable(data) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes_are_read_by_people(count: int, text: str) -> None:
    assert bytes_text(count) == text
