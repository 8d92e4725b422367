"""The requests of one connection, carried out on its session."""
