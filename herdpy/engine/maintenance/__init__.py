"""What keeps a directory: checkpoint, compaction, recovery, backup, dump, doctor."""
