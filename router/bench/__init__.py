"""Measurements of the gateway itself, side by side in one run."""
