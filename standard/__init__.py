"""Single-shot answering over PostgreSQL: corpus, retrieval, embedding, LLM access and the sandbox."""
