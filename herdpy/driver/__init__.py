"""DB-API 2.0 over the engine."""
