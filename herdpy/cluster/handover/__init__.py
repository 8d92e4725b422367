"""How a leader gives its part to another node that is wanted in its place."""
