"""What a bookie keeps: journal, write cache, entry logs, index; replay, collection, compaction."""
