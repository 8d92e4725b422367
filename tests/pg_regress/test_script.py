"""Scripts are read as psql reads them: where statements end, variables, branches, rows of COPY."""

import pytest

from tests.pg_regress.script import Command, Item, Script, Statement


def read(text: str, **variables: str) -> list[Item]:
    script = Script(text, {"PG_LIBDIR": "/lib"}, dict(variables))
    return [*iter(script.read, None)]


def texts(text: str, **variables: str) -> list[str]:
    return [item.text for item in read(text, **variables) if isinstance(item, Statement)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select 1;select 2 ; ", ["select 1", "select 2"]),
        ("select ';', 'it''s; so';", ["select ';', 'it''s; so'"]),
        ("select 'a\\'; select 2;", ["select 'a\\'", "select 2"]),
        (r"select E'\';', e'\\'; select 2;", [r"select E'\';', e'\\'", "select 2"]),
        ('select 1 as "a;""b;";', ['select 1 as "a;""b;"']),
        ("do $$ begin; end; $$; select 1;", ["do $$ begin; end; $$", "select 1"]),
        ("do $a$ ; $$ ; $b$ ; $a$; select $1;", ["do $a$ ; $$ ; $b$ ; $a$", "select $1"]),
        ("select a$b$c; select 1$;", ["select a$b$c", "select 1$"]),
        ("select 1 -- no; end\n + 1;", ["select 1 -- no; end\n + 1"]),
        ("select /* a; /* b; */ c; */ 1;", ["select /* a; /* b; */ c; */ 1"]),
        ("-- first\n/* then */ select 1; -- last", ["select 1"]),
        ("create rule r as on insert to t do (a; b); select 1;",
         ["create rule r as on insert to t do (a; b)", "select 1"]),
        ("select (1; select 2", ["select (1; select 2"]),
        ("select 1); select 2;", ["select 1)", "select 2"]),
        (";; select 1;;", ["select 1"]),
        ("select 1", ["select 1"]),
    ],
)  # fmt: skip
def test_a_semicolon_ends_a_statement_where_it_is_none_of_its_parts(
    text: str, expected: list[str]
) -> None:
    assert texts(text) == expected


def test_a_body_of_a_function_has_semicolons() -> None:
    body = (
        "create or replace function f() returns int begin atomic"
        " select case when true then 1 end; select 2; end"
    )
    assert texts(f"{body}; select 3;") == [body, "select 3"]
    assert texts("begin; select case 1 when 1 then 2 end; end; select 3;") == [
        "begin", "select case 1 when 1 then 2 end", "end", "select 3",
    ]  # fmt: skip


def test_a_backslash_escapes_in_strings_where_the_server_says_so() -> None:
    script = Script(r"select 'it\'s; so'; select 2;", has_escapes=True)
    assert script.read() == Statement(1, r"select 'it\'s; so'")
    assert script.read() == Statement(1, "select 2")


def test_a_line_is_that_of_the_first_word() -> None:
    items = read("\n-- one\nselect\n 'a\nb';\n\\d t\n\n  select 2;")
    assert [item.line for item in items] == [3, 6, 8]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select :x, :'x', :\"x\";", ["select a b, 'a b', \"a b\""]),
        ("select ':x', $$:x$$, y::x, 1:x;", ["select ':x', $$:x$$, y::x, 1a b"]),
        ("select :y, :'y';", ["select :y, :'y'"]),
        ("select :{?x}, :{?y};", ["select TRUE, FALSE"]),
        ("select :q;", ["select 1", "select 2"]),
        ("select :self;", ["select :self"]),
        ("select :'quote';", ["select 'it''s'"]),
    ],
)
def test_variables_are_put_in(text: str, expected: list[str]) -> None:
    found = texts(text, x="a b", q="1; select 2", self=":self", quote="it's")
    assert found == expected


def test_set_joins_its_arguments() -> None:
    text = (
        "\\getenv dir PG_LIBDIR\n\\set lib :dir '/it''s\\n' .so\n\\unset dir\nselect :'lib', :dir;"
    )
    assert texts(text) == ["select '/lib/it''s\n.so', :dir"]


def test_commands_are_told_from_statements() -> None:
    items = read(
        "\\d+ t\n\\copy t from 'x\\y' \nselect 1 \\gset a_ \\echo b\nselect 2\\gx\nselect 3 \\p\n;"
    )
    assert items == [
        Command(1, "d+", ("t",)), Command(2, "copy", (r"t from 'x\y'",)),
        Statement(3, "select 1", "gset", ("a_",)), Command(3, "echo", ("b",)),
        Statement(4, "select 2", "gx"), Statement(5, "select 3"),
    ]  # fmt: skip


def test_several_statements_in_a_message_are_one() -> None:
    assert read("select 1\\; select 2; select 3;") == [
        Statement(1, "select 1; select 2", is_several=True), Statement(1, "select 3"),
    ]  # fmt: skip


def test_a_buffer_is_forgotten() -> None:
    assert texts("select 1 \\r\nselect 2;") == ["select 2"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\if :no\nselect 1;\n\\else\nselect 2;\n\\endif\nselect 3;", ["select 2", "select 3"]),
        ("\\if :yes\nselect 1;\n\\elif :yes\nselect 2;\n\\else\nselect 3;\n\\endif", ["select 1"]),
        ("\\if :no\n\\set x 1\n\\if :yes\nselect 1;\n\\endif\n\\endif\nselect :x;", ["select :x"]),
        ("select 1;\n\\if :yes\n\\quit\n\\endif\nselect 2;", ["select 1"]),
        ("select 1;\n\\if :no\n\\q\n\\endif\nselect 2;", ["select 1", "select 2"]),
    ],
)
def test_branches_are_taken_or_left(text: str, expected: list[str]) -> None:
    assert texts(text, yes="on", no="off") == expected


def test_rows_of_a_copy_are_what_follows() -> None:
    script = Script("copy t from stdin;\n1\ta;b\n\\N\t\\.\n\\.\nselect 1;")
    assert script.read() == Statement(1, "copy t from stdin")
    assert script.copy_rows() == ["1\ta;b", "\\N\t\\."]
    assert script.read() == Statement(5, "select 1")


def test_a_variable_may_be_set_between_two_reads() -> None:
    script = Script("select 1 as a \\gset\nselect :a;")
    script.read()
    script.variables["a"] = "7"
    assert script.read() == Statement(2, "select 7")
