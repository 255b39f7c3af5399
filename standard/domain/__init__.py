"""The nouns of the house: questions, passages, events, answers and errors. Imports nothing of ours."""
