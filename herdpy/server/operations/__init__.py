"""What an operator sees of a server: health, metrics, warnings in its log."""
