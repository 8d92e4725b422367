"""The management of bookies and their cluster over HTTP."""
