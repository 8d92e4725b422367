"""The replicated log of herdpy and the base layer under it; knows no SQL, imports no herdpy."""
