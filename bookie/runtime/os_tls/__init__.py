"""TLS over real sockets, and what it is made of: files."""
