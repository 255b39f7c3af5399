"""How much of a question stands in a text: what the rules of the offline controller measure, without any model.

Words are compared by stem; numbers and names weigh more than other words. Terms that the collection knows have their
inverse document frequency as weight, so that rare words count and common ones hardly do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from standard.words import STOP_WORDS, content_stems, stem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")


@dataclass(frozen=True, slots=True)
class Term:
    """A content word of a question: its stem, its form as written, its weight (> 0)."""

    stem: str
    word: str
    weight: float


def word_set(text: str) -> frozenset[str]:
    """The words of a text, as written."""
    return frozenset(text.split())


@lru_cache(maxsize=1024)
def stems(text: str) -> frozenset[str]:
    """The stems of the content words of a text."""
    return frozenset(content_stems(text))


def content_terms(question: str, idf: Mapping[str, float] | None = None) -> tuple[Term, ...]:
    """The content words of a question, in order, without repeats.

    `idf` maps lexemes of the collection's text search to their inverse document frequency; a word takes that of the
    lexeme with its stem, else that of the rarest. Names and numbers count double.
    """
    by_stem = {stem(lexeme): value for lexeme, value in (idf or {}).items()}
    unknown = max(by_stem.values(), default=1.0)
    terms: dict[str, Term] = {}
    for match in _WORD.finditer(question):
        word = match.group()
        if word.casefold() in STOP_WORDS:
            continue
        key = stem(word.casefold())
        weight = max(0.1, by_stem.get(key, unknown))
        if any(letter.isdigit() for letter in word) or (word[0].isupper() and match.start() > 0):
            weight *= 2.0
        if key not in terms:
            terms[key] = Term(key, word, weight)
    return tuple(terms.values())


def covered(terms: Iterable[Term], present: frozenset[str]) -> float:
    """The weighted share (0-1) of terms whose stem is present; 1 for no terms."""
    total = found = 0.0
    for term in terms:
        total += term.weight
        if term.stem in present:
            found += term.weight
    return found / total if total else 1.0
