"""BookKeeper's wire protocol: messages and frames of v3, and of v2 for clients that ask."""
