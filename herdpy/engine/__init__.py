"""The owner of everything that changes: database.py on top of six layers, lowest first.

state (what is, and how the log changes it), access (who may do what), writes (rows on their way to
the log), maintenance (checkpoint, recovery, backup), statements (one statement carried out),
session (one connection's settings, transaction and statements). tests/style/test_layers.py.
"""
