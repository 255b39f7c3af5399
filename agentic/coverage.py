"""How much of a question stands in a text: the evidence judge's measure, without any model.

Words are compared by a short stem; numbers and names weigh more than other words. Terms that the collection knows have
their inverse document frequency as weight, so that rare words count and common ones hardly do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "er", "es", "ed", "ly", "e", "s", "y")


def word_set(text: str) -> frozenset[str]:
    """The words of a text, as written."""
    return frozenset(text.split())


STOP_WORDS = word_set("""
    a about after all also am an and any are as at be because been before being between both but by can could did do
    does doing done during each either else for from get give given had has have having he her here hers him his how
    i if in into is it its itself just many may me might more most much must my neither no nor not of on one only or
    other our out over own same shall she should so some such tell than that the their them then there these they
    this those through to too under until up us very was we were what whats when where whether which while who whom
    whose why will with would you your please
""")


@dataclass(frozen=True, slots=True)
class Term:
    """A content word of a question: its stem, its form as written, its weight (> 0)."""

    stem: str
    word: str
    weight: float


def stem(word: str) -> str:
    """A rough English stem: casefolded, possessive and common endings off while at least three letters stay."""
    text = word.casefold().replace("’", "'").removesuffix("'s").replace("'", "")
    for ending in _ENDINGS:
        if text.endswith(ending) and len(text) - len(ending) >= 3:
            return text[: -len(ending)]
    return text


def stems(text: str) -> frozenset[str]:
    """The stems of all words of a text."""
    return frozenset(stem(word) for word in _WORD.findall(text))


def content_terms(question: str, idf: Mapping[str, float] | None = None) -> tuple[Term, ...]:
    """The content words of a question, in order, without repeats.

    `idf` maps lexemes of the collection's text search to their inverse document frequency; a word takes that of the
    lexeme with its stem, else 1. Names and numbers count double.
    """
    by_stem = {stem(lexeme): value for lexeme, value in (idf or {}).items()}
    terms: dict[str, Term] = {}
    for match in _WORD.finditer(question):
        word = match.group()
        if word.casefold() in STOP_WORDS:
            continue
        key = stem(word)
        weight = max(0.1, by_stem.get(key, 1.0))
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
