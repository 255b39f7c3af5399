"""Looks at an installation and says what it found, and the way out."""
