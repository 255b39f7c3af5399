"""Text as it may be kept and may leave the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def encodable(text: str) -> str:
    """Text that has a UTF-8: lone surrogates, which a model's JSON can hold, become `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def storable(text: str) -> str:
    """Text that PostgreSQL can hold: as `encodable`, and NUL becomes U+FFFD."""
    return encodable(text).replace("\x00", "\ufffd")


def in_texts(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - values of JSON
    """A value of JSON with every text of it changed, keys too. Raises RecursionError where it is nested too deeply."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [in_texts(inner, change) for inner in value]
    if isinstance(value, dict):
        return {change(key): in_texts(inner, change) for key, inner in value.items()}
    return value
