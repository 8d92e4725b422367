"""The demo: real tables, real queries, a killed writer, and the count of what is there."""
