"""Any OpenAI-compatible model server: one client, capabilities detected, usage counted, failures typed."""
