"""The one journal: an append-only table of what happened in each run, read by streams, traces, labels and erasure."""
