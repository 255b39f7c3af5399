"""Does what the first retrieval shows suffice? Features of one look at the corpus, as pure functions."""
