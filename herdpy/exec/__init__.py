"""Plans to rows: a generated row path, and a vector path over DuckDB; one meaning."""
