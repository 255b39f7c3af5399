"""Replay: recorded exchanges of a legacy endpoint sent again, and what differs in structure, words and time."""
