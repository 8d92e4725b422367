"""The replicated log of herdpy and the ground floor under it; knows no SQL, imports no herdpy."""
