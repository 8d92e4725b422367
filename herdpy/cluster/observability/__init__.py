"""What an operator sees of a cluster: replicas, ledgers, figures, what a node knows."""
