"""Prevents: the agreed word for "the passages do not hold it" reaching anyone's eyes.

A model that cannot answer says NOT_IN_PASSAGES and nothing else. The word is taken out wherever it stands and however a
stream splits it; where it comes first the model has declined, where it comes later part of the answer is missing.
"""

from __future__ import annotations

import re

from standard.sandbox.neutralise import NO_ANSWER


def _prefixes(word: str) -> str:
    """A pattern for every beginning of `word`, with Markdown's backslash before an underscore allowed."""
    pattern = ""
    for sign in reversed(word):
        rest = f"(?:{pattern})?" if pattern else ""
        pattern = rf"\\?(?:_{rest})?" if sign == "_" else f"{sign}{rest}"
    return pattern


_WORD = re.compile(NO_ANSWER.replace("_", r"\\?_"), re.IGNORECASE)
_BEGUN = re.compile(rf"(?:{_prefixes(NO_ANSWER)})\Z", re.IGNORECASE)
_DECORATION = re.compile(r"[\W_]*\Z")


class NoAnswerFilter:
    """Feed it a model's text; it gives back what may be shown. `declined`: the word came first; `partial`: later."""

    def __init__(self) -> None:
        self.declined = False
        self.partial = False
        self._held = ""
        self._begun = False

    def feed(self, delta: str) -> str:
        """Text that may be shown now; nothing more once the model has declined."""
        if self.declined:
            return ""
        text, shown = self._held + delta, ""
        while match := _WORD.search(text):
            if not self._begun and _DECORATION.match(text[: match.start()]):
                self.declined = True
                self._held = ""
                return ""
            self.partial = self._begun = True
            shown += text[: match.start()] + " "  # a blank, lest what stands around it join to the word again
            text = text[match.end() :]
        maybe = _BEGUN.search(text)
        cut = maybe.start() if maybe is not None else len(text)
        if not self._begun and _DECORATION.match(text[:cut]):
            cut = 0  # quotes, stars and blanks before the first word may belong to it
        self._held = text[cut:]
        self._begun = self._begun or cut > 0
        return shown + text[:cut]

    def finish(self) -> str:
        """The rest: the beginning of the word alone is ordinary text."""
        rest, self._held = self._held, ""
        return "" if self.declined else rest
