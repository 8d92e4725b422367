"""What a node knows and measures of take-overs: that a leader is silent, how long its own took."""
