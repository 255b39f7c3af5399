"""The command line: a thin skin over the client and the composition root."""
