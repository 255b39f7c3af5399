"""The stages of an ingest: what a run knows, and how documents are prepared, embedded and written."""
