"""The demo corpus: one fictional ferry operator's knowledge base, its sources and its renderer."""
