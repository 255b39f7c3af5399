"""The type of text that may be sent to a model.

Prompt text is made in two ways: `instruction` for words that we wrote ourselves (a literal in the source), and
`standard.sandbox.render` for everything that came from outside. A bare `str` or an UntrustedText in a message does not
type-check.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString


@dataclass(frozen=True, slots=True)
class PromptText:
    """Text that may enter a prompt. Construct it through `instruction`, `join` or `standard.sandbox.render` only."""

    value: str

    def __add__(self, other: PromptText) -> PromptText:
        return PromptText(self.value + other.value)


def instruction(text: LiteralString) -> PromptText:
    """Our own words: a literal of the source code, never anything that came from outside."""
    return PromptText(text)


def join(separator: LiteralString, parts: list[PromptText]) -> PromptText:
    """Join prompt texts with a literal between them."""
    return PromptText(separator.join(part.value for part in parts))
