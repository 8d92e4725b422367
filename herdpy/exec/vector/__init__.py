"""The vector path: DuckDB over a snapshot's pages."""
