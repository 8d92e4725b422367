"""A psql script, read as psql does: one statement or backslash command after the other.

A semicolon ends a statement outside of strings, dollar quotes, comments, parentheses, and BEGIN
ATOMIC … END of a function's body. Reading is lazy: what a variable holds, whether the rows of a
COPY follow and what a backslash in a string means depends on how the statements before went.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.pg_regress.tokens import Token, token_at

_ENDING = frozenset(("g", "gx", "gset", "gexec", "gdesc", "crosstabview", "watch", "bind"))
"""Commands that end the statement before them, as a semicolon does."""
_WHOLE_LINE = frozenset(("copy", "!", "sf", "sv", "ef", "ev", "h", "help", "echo", "qecho", "warn"))
"""Commands whose argument is the rest of the line, backslashes too."""
_ARGUMENT = re.compile(
    r"""'(?P<string>(?:[^'\\]|\\.|'')*)' | (?P<variable>:(?:'\w+'|"\w+"|\{\?\w+\}|\w+))
      | (?P<quoted>"[^"\n]*") | (?P<space>[ \t]+) | (?P<end>[\\\n]) | (?P<other>.)""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?P<letter>[ntbrf]|.)|''", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "r": "\r", "f": "\f"}
_NO = frozenset(("", "0", "false", "off", "no", "f", "n"))
_BODY = re.compile(r"create\s+(?:or\s+replace\s+)?(?:function|procedure)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Statement:
    """A statement without the semicolon at its end."""

    line: int
    """Of its first word; 1 is the first."""
    text: str
    ending: str = ""
    """The command that ended it instead of a semicolon: gset, say."""
    arguments: tuple[str, ...] = ()
    """Of that command."""
    is_several: bool = False
    r"""Whether it is several statements in one message, with \; between them."""


@dataclass(frozen=True)
class Command:
    """A backslash command that is none of the script's own: d, echo or copy, say."""

    line: int
    name: str
    arguments: tuple[str, ...] = ()


Item = Statement | Command


@dataclass
class Script:
    r"""A script and how far it was read; does \set, \unset, \getenv, \if and their like itself."""

    text: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    r"""What \getenv reads."""
    variables: dict[str, str] = field(default_factory=dict[str, str])
    has_escapes: bool = False
    """Whether a backslash escapes in every string."""
    _place: int = 0
    _put_in_end: int = 0
    """Variables before it stand in the value of another one, and stay as they are."""
    _line: int = 1
    _branches: list["_Branch"] = field(default_factory=list["_Branch"])

    def read(self) -> Item | None:
        """Return what comes next in a branch that is taken; None behind the last."""
        while (item := self._read()) is not None:
            if isinstance(item, Command) and self._has_done(item):
                continue
            if all(branch.is_taken for branch in self._branches):
                if isinstance(item, Command) and item.name == "q":
                    return None
                return item
        return None

    def copy_rows(self) -> list[str]:
        r"""Return the lines that stand here up to \., which stand for COPY's standard input."""
        self._take_line()
        lines: list[str] = []
        while self._place < len(self.text):
            line = self._take_line()
            if line == "\\.":
                break
            lines.append(line)
        return lines

    # --- statements ---

    def _read(self) -> Item | None:
        parts: list[str] = []
        line = depth = blocks = 0
        is_several = has_body = False
        while self._place < len(self.text):
            token = token_at(self.text, self._place, has_escapes=self.has_escapes)
            if token.kind == "variable" and self._put_in(token):
                continue
            if token.kind == "backslash":
                name = self._command_name()
                if name in (";", ":"):
                    is_several |= name == ";"
                    parts.append(name)
                    continue
                command = self._command(name)
                if not line:
                    return command
                if name in _ENDING:
                    return Statement(line, _joined(parts), name, command.arguments, is_several)
                if name == "r":
                    return self._read()
                continue  # \p, say, in the middle of a statement
            self._pass(token)
            if token.text == ";" and not depth and not blocks:
                if line:
                    return Statement(line, _joined(parts), is_several=is_several)
                continue
            if not line and token.kind in ("space", "comment"):
                continue
            line = line or self._line - token.text.count("\n")
            parts.append(token.text)
            if token.text in ("(", ")"):
                depth = max(depth + (1 if token.text == "(" else -1), 0)
            elif token.kind == "word" and not depth:
                has_body = has_body or (len(parts) < 12 and bool(_BODY.match(_joined(parts))))
                blocks += _block_step(token.text.lower(), blocks) if has_body else 0
        return Statement(line, _joined(parts), is_several=is_several) if line else None

    def _pass(self, token: Token) -> None:
        self._place = token.end
        self._line += token.text.count("\n")

    def _put_in(self, token: Token) -> bool:
        """Put the value of a variable in its place, which is read next; not if it has none."""
        value = self._value(token.text)
        if value is None or token.start < self._put_in_end:
            return False
        self.text = self.text[: token.start] + value + self.text[token.end :]
        self._put_in_end = token.start + len(value)
        return True

    def _value(self, text: str) -> str | None:
        """Return what stands for :name, :'name', :"name" or :{?name}; None to leave it as it is."""
        name = text.strip(":'\"{?}")
        if text.startswith(":{"):
            return "TRUE" if name in self.variables else "FALSE"
        value = self.variables.get(name)
        if value is None or text[1] not in "'\"":
            return value
        return text[1] + value.replace(text[1], text[1] * 2) + text[1]

    # --- backslash commands ---

    def _command_name(self) -> str:
        match = re.compile(r"\\(\w+\+?|.)", re.DOTALL).match(self.text, self._place)
        name = "" if match is None else match[1]
        self._place += 1 + len(name)
        return {"quit": "q", "reset": "r"}.get(name, name)

    def _command(self, name: str) -> Command:
        line = self._line
        if name in _WHOLE_LINE:
            end = self.text.find("\n", self._place)
            rest = self.text[self._place : len(self.text) if end < 0 else end]
            self._place += len(rest)
            return Command(line, name, (rest.strip(),))
        arguments: list[str] = []
        is_begun = False
        while self._place < len(self.text):
            match = _ARGUMENT.match(self.text, self._place)
            if match is None or match["end"]:
                break
            self._place = match.end()
            if match["space"]:
                is_begun = False
                continue
            piece = self._piece(match)
            if is_begun:
                arguments[-1] += piece
            else:
                arguments.append(piece)
            is_begun = True
        if self.text.startswith("\\\\", self._place):
            self._place += 2
        return Command(line, name, tuple(arguments))

    def _piece(self, match: re.Match[str]) -> str:
        if match["string"] is not None:
            return _ESCAPE.sub(_unescaped, match["string"])
        if match["variable"]:
            value = self._value(match["variable"])
            return match["variable"] if value is None else value
        return match[0]

    def _has_done(self, command: Command) -> bool:
        """Do what is the script's own, and say whether it was that."""
        name, arguments = command.name, command.arguments
        if name in ("if", "elif", "else", "endif"):
            self._branch(name, _is_true(arguments))
            return True
        if name not in ("set", "unset", "getenv"):
            return False
        if not all(branch.is_taken for branch in self._branches) or not arguments:
            return True
        if name == "set":
            self.variables[arguments[0]] = "".join(arguments[1:])
        elif name == "unset":
            self.variables.pop(arguments[0], None)
        elif arguments[-1] in self.environment:
            self.variables[arguments[0]] = self.environment[arguments[-1]]
        return True

    def _branch(self, name: str, is_true: bool) -> None:
        if name == "if":
            self._branches.append(_Branch(is_true, is_true))
        elif self._branches and name == "endif":
            self._branches.pop()
        elif self._branches:
            branch = self._branches[-1]
            branch.is_taken = not branch.was_taken and (name == "else" or is_true)
            branch.was_taken |= branch.is_taken

    def _take_line(self) -> str:
        end = self.text.find("\n", self._place)
        end = len(self.text) if end < 0 else end
        line = self.text[self._place : end]
        self._place = end + 1
        self._line += 1
        return line


@dataclass
class _Branch:
    r"""One of \if … \elif … \else … \endif."""

    is_taken: bool
    was_taken: bool
    """Whether it, or one before it, was."""


def _joined(parts: list[str]) -> str:
    return "".join(parts).strip()


def _block_step(word: str, blocks: int) -> int:
    """Return by how much a word of a function's body changes the depth of its BEGINs."""
    if word == "begin" or (word == "case" and blocks):
        return 1
    return -1 if word == "end" and blocks else 0


def _unescaped(match: re.Match[str]) -> str:
    letter = match["letter"]
    return "'" if letter is None else _ESCAPES.get(letter, letter)


def _is_true(arguments: tuple[str, ...]) -> bool:
    return "".join(arguments).lower() not in _NO
