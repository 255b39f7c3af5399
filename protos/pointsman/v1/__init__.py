"""Generated from the protos; see protos/generate.py."""
