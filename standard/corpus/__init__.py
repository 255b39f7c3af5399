"""What is known: collections, documents, chunks, and how they get in."""
