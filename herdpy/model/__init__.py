"""Immutable facts: types, schemas, keys, positions."""
