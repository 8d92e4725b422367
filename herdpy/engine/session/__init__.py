"""One connection's settings, transaction and statements."""
