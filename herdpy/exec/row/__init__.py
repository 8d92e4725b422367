"""The row path: one generated Python function per statement shape."""
