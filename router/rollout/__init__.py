"""Rollout: who may take the agentic route, what it would have answered aside, and what came of it."""
