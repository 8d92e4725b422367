"""The bytes between driver and server: messages, values, and one machine for each side."""
