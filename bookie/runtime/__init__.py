"""The base layer: clock, disk, chance, threads and waiting; nothing else touches the world."""
