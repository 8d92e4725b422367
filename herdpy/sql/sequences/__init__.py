"""Sequences in SQL: their options, what binds them, and their text."""
