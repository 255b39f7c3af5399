"""Takes a model's thoughts out of its text: what stands between <think> and </think> at the start of an answer.

Reasoning models behind servers without a reasoning parser put their thoughts there; an answer must not show them.
"""

from __future__ import annotations

_OPEN, _CLOSE = "<think>", "</think>"


class ReasoningFilter:
    """Feed it pieces of text; it gives back what may be shown, the same however the text is split."""

    def __init__(self) -> None:
        self._state = "start"
        self._held = ""

    def feed(self, piece: str) -> str:
        """Text that may be shown now."""
        if self._state == "text":
            return piece
        self._held += piece
        if self._state == "start":
            begun = self._held.lstrip()
            if len(begun) < len(_OPEN) and _OPEN.startswith(begun):
                return ""
            if not begun.startswith(_OPEN):
                return self._release(self._held)
            self._state, self._held = "thoughts", begun
        thoughts, closed, after = self._held.partition(_CLOSE)
        if not closed:
            self._held = thoughts[-len(_CLOSE) :]
            return ""
        after = after.lstrip()
        if not after:
            self._held = _CLOSE  # blank lines after the thoughts belong to them
            return ""
        return self._release(after)

    def finish(self) -> str:
        """The rest of the text at its end; thoughts that never closed are not shown."""
        return self._release(self._held if self._state == "start" else "")

    def _release(self, text: str) -> str:
        self._state, self._held = "text", ""
        return text
