"""The bookie: journal, write cache, entry logs, index, and the protocol on asyncio."""
