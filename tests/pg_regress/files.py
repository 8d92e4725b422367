"""Which files of the corpus are run."""

from pathlib import Path

NAMED = (
    "boolean", "int4", "float8", "numeric", "strings", "date", "timestamptz", "interval", "join",
    "aggregates", "subselect", "with", "window", "insert_conflict", "transactions",
)  # fmt: skip
"""Those by which SQL's coverage is measured: the first ones."""
_PATTERNS = (
    "select*", "join*", "case", "char", "name", "varchar", "text", "numeric*", "int*", "float*",
    "time*", "insert*", "update", "delete", "merge", "constraints", "foreign_key", "identity",
    "generated", "sequence", "create_index", "create_view", "alter_table", "copy", "copy2",
    "truncate", "groupingsets",
)  # fmt: skip


def files_of(corpus: Path) -> list[str]:
    """Return the names of the files that are run of a corpus: src/test/regress of PostgreSQL."""
    folder = corpus / "sql"
    found = {path.stem for pattern in _PATTERNS for path in folder.glob(f"{pattern}.sql")}
    return [*NAMED, *sorted(found.difference(NAMED))]
