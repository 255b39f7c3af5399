"""Text as it may leave the process."""

from __future__ import annotations


def encodable(text: str) -> str:
    """Text that has a UTF-8: lone surrogates, which a model's JSON can hold, become `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
