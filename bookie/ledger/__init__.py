"""Ledgers without I/O: formats, quorum arithmetic, and the machines of writer, reader, recovery."""
