"""A follow-up made to stand alone: its words, after those of the user's last question that it leans on.

Prevents a follow-up ("and for Corvane?") from being routed, embedded and searched as the fragment that it is. No model:
a question that leans is recognised by how it opens, by words that point back and by its brevity, and gets the last
thing the user asked put before it. What does not lean is left alone, so a change of subject stays one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from classifier.neutral import folded, neutral

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_OPENS = re.compile(
    r"(?:and|but|or|so|then|also|what about|how about|what if|same|why not|why so|which one|which ones|who else"
    r"|what else|ok|okay|thanks|no|yes)\b"
)
_POINTS_BACK = frozenset(
    word
    for line in (
        "it its they them their theirs he him his she her hers",
        "that those this these there then one ones same such former",
    )
    for word in line.split()
)
_SHORT = 4
MAX_BEFORE = 600
"""Code points of the earlier question that are put before; of a longer one the end."""


def leans(question: str) -> bool:
    """Say whether a question of a conversation refers to what was said before."""
    lowered = folded(question)
    words = _WORD.findall(lowered)
    if len(words) <= _SHORT or _OPENS.match(lowered):
        return True
    return len(words) <= 20 and any(word in _POINTS_BACK for word in words)


def standalone(question: str, asked_before: Sequence[str]) -> str:
    """Return the question as it can be understood alone.

    `asked_before` are the user's earlier messages, oldest first. Where the last of them leans as well, the one before
    it is put in front too.
    """
    if not asked_before or not leans(question):
        return question
    before = neutral(asked_before[-1])
    if len(asked_before) > 1 and leans(asked_before[-1]):
        before = f"{neutral(asked_before[-2])}. {before}"
    before = before[-MAX_BEFORE:].strip()
    return f"{before}. {question}" if before else question
