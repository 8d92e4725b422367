"""A text to its syntax tree: tokens, budgets, PostgreSQL's grammar. Knows no tables."""
