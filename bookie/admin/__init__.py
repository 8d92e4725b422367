"""Commands of operators; the edge, where worlds are built."""
