"""Text of others for terminals and log lines: what is not printable is escaped, or replaced.

Not printable are control characters (ESC begins what changes a terminal), ends of lines, and marks
that turn the direction of text, as str.isprintable() has them.
"""


def escaped(text: str) -> str:
    r"""Return text on one line: what is not printable as Python writes it, as in \x1b."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )


def masked(text: str, kept: str = "") -> str:
    """Return text of the same length: what is not printable, nor `kept`, is a question mark."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else "?" for c in text)


def escaped_json(text: str) -> str:
    """Return encoded JSON that says the same with nothing but printable characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _json_escapes(c) for c in text)


def _json_escapes(character: str) -> str:
    data = character.encode("utf-16-be", "surrogatepass")
    units = (data[at : at + 2].hex() for at in range(0, len(data), 2))
    return "".join(f"\\u{unit}" for unit in units)
