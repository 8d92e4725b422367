"""Ledger metadata, cookies and registrations in a versioned compare-and-set store.

Importing it is a MissingExtraError without the packages of the extra `bookie`.
"""

from bookie.extras import require_ledger_store

require_ledger_store()
