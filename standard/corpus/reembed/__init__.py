"""A change of embedder: a generation beside the one that answers, a switch, a way back, the end of the old one."""
