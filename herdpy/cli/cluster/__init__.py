"""`herdpy node` and `herdpy cluster`: nodes that have copies of tablespaces, and what they make."""
