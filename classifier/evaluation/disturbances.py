"""Harmless changes to a question that must not change its route: case, final punctuation, typing errors."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_FINAL = re.compile(r"[\s?.!]+$")


def other_cases(question: str) -> list[str]:
    """Return the question in lower and in upper case, without those that cannot be folded back (ß becomes SS)."""
    forms = [question.lower(), question.upper()]
    return [form for form in forms if form.casefold() == question.casefold() and form != question]


def other_endings(question: str) -> list[str]:
    """Return the question with no mark at its end, and with each of ? . !"""
    bare = _FINAL.sub("", question)
    return [form for form in (bare, f"{bare}?", f"{bare}.", f"{bare} !") if form != question and bare]


def with_typos(question: str, *, rate: float = 0.03, seed: int = 0) -> list[str]:
    """Return the question with about `rate` of its letters swapped with the next, doubled or dropped; at least one."""
    chance = random.Random(f"{seed} {question}")  # noqa: S311 - reproducible disturbance, no secret
    places = [place for place in range(1, len(question) - 1) if question[place : place + 2].isalpha()]
    if not places:
        return []
    letters = list(question)
    for place in sorted(chance.sample(places, min(len(places), max(1, round(rate * len(places))))), reverse=True):
        kind = chance.randrange(3)
        if kind == 0:
            letters[place], letters[place + 1] = letters[place + 1], letters[place]
        elif kind == 1:
            letters.insert(place, letters[place])
        else:
            del letters[place]
    return ["".join(letters)]


DISTURBANCES: dict[str, Callable[[str], list[str]]] = {
    "case": other_cases,
    "punctuation": other_endings,
    "typo": with_typos,
}
"""By the names that reports use."""
