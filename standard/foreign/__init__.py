"""Tables that somebody else made and fills, read as they are."""
