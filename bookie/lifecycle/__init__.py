"""The lifecycle of a bookie: Active, Draining, Drained or DrainingFailed, and what may move it."""
