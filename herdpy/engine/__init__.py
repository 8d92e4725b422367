"""The owner of state: tablespace, transactions, locks, checkpoint and recovery."""
