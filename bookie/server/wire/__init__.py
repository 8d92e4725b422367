"""What peers see: connections, requests of protocol v3 and v2, long polls, and their limits."""
