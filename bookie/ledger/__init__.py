"""Ledgers without I/O: formats, quorum arithmetic, and the machines of writer, reader, recovery.

Importing it is a MissingExtraError without the packages of the extra `bookie`.
"""

from bookie.extras import require_ledger_store

require_ledger_store()
