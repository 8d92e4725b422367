"""Names that a statement does not give: those of constraints, indexes and sequences."""

from herdpy.limits import identifier_bytes_max


def generated_name(first: str, second: str, end: str) -> str:
    """Return the name that PostgreSQL makes of two, or one, and an end.

    Of names that are too long the longer one gives up characters.
    """
    names, tail = [first, second] if second else [first], f"_{end}"
    while len("_".join(names).encode()) + len(tail) > identifier_bytes_max:
        longest = max(range(len(names)), key=lambda place: len(names[place].encode()))
        names[longest] = names[longest][:-1]
    return "_".join(names) + tail
