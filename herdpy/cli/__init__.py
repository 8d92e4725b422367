"""The command line: herdpy shell, herdpy demo."""
