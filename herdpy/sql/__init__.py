"""SQL text to a bound tree, and the tree to a plan or to DuckDB's text."""
