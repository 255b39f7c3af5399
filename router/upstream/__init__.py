"""The RAG endpoint that is there already: as the standard route, or where ours fails."""
