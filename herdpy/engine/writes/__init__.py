"""Rows on their way to the log: looked up, locked, checked, then logged."""
