"""AutoRecovery: lost copies of ledgers are noticed, published as tasks, and made again."""
