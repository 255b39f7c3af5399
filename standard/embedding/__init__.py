"""Turning questions and passages into vectors: the shipped model, other models, endpoints, and batching."""
