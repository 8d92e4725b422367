"""Who gets in: TLS, passwords, certificates, tokens, and the log of it."""
