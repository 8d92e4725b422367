"""A node of a cluster as a process runs it: what `herdpy node` is, and programs that embed one."""
