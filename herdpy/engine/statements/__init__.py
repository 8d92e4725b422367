"""One statement, from a planned text to its result."""
