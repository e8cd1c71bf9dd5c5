"""How we know: the shipped code itself, walked through every way its dice can fall."""
