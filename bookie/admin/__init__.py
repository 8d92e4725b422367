"""Commands of operators; here clocks, disks and stores are built."""
