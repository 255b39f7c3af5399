"""How complex does a question look, and does the first retrieval suffice: models over arrays and strings."""
