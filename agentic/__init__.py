"""The guarded agentic loop: controllers propose, guards dispose, one journal."""
