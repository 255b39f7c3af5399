"""Controllers: the patterns of the loop. Each only proposes."""
