"""A tablespace over ledgers: their list, their writer, their readers. docs/ARCHITECTURE.md."""
