"""The state of a tablespace: tables, versions, locks, leases; applied from the log, in order."""
