"""What definitions say beside names and types, bound: CHECKs, and changes of tables."""
