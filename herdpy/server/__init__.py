"""The server: connections on one asyncio loop, statements on a bounded executor."""
