"""Ledger metadata, cookies and registrations in a versioned compare-and-set store."""
