"""Answers without a language model: the best sentences of the passages, and how far they can be trusted to answer."""
