"""The parts of a question that are looked for one by one: its clauses, its noun phrases, its content words.

A question that needs two documents has parts that are at home in different ones. Splitting is by closed classes of
words and punctuation, so it costs microseconds and knows no domain. All parts of a question are embedded in one batch,
together about twice the question's own tokens.
"""

from __future__ import annotations

import re

from classifier.neutral import neutral

MAX_PIECES = 6
MAX_WORDS = 10
_MAX_WORDS_READ = 80
"""Words of a question that are split; of a longer one the last: people end with the question."""

_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
_PUNCTUATION = r"[,;:.?!–—()]\s"
_CLAUSE_WORDS = r"that|which|who|whom|whose|where|when|if|and|or|but|than|because|while|so"
_PREPOSITIONS = (
    r"for|from|with|of|in|on|at|by|to|under|over|after|before|between|during|since|until|without|against|about"
)
_CLAUSES = re.compile(rf"\s*(?:{_PUNCTUATION}|\b(?:{_CLAUSE_WORDS})\b)\s*", re.IGNORECASE)
_PHRASES = re.compile(rf"\s*(?:{_PUNCTUATION}|\b(?:{_CLAUSE_WORDS}|{_PREPOSITIONS})\b)\s*", re.IGNORECASE)
FUNCTION_WORDS = frozenset(
    word
    for line in (
        "a an the is are was were be been do does did can could will would should shall may might must has have had",
        "i we he she it they my our your you his her its their me us them am i'm it's this that these those there here",
        "what which who whom whose when where why how of in on at by for from with to into about as and or not no any",
        "some all if so than then too very just also please tell know get got want need much many",
    )
    for word in line.split()
)


def content_words(text: str) -> list[str]:
    """Return the words that carry meaning, in lower case, in order, repeats included."""
    return [word for word in _WORD.findall(text.lower()) if word not in FUNCTION_WORDS]


def words_of(question: str) -> list[str]:
    """Return up to MAX_WORDS distinct content words; of more, the longest."""
    words = list(dict.fromkeys(content_words(_end_of(question))))
    if len(words) > MAX_WORDS:
        kept = set(sorted(words, key=len, reverse=True)[:MAX_WORDS])
        words = [word for word in words if word in kept][:MAX_WORDS]
    return words


def pieces_of(question: str) -> list[str]:
    """Return up to MAX_PIECES distinct parts of the question, none of them the whole; of more, the longest."""
    whole = _end_of(question)
    found: dict[str, None] = {}
    for splitter in (_CLAUSES, _PHRASES):
        for part in splitter.split(whole):
            part = part.strip()  # noqa: PLW2901 - the same part
            if part != whole and len("".join(content_words(part))) > 2:
                found[part] = None
    pieces = list(found)
    if len(pieces) > MAX_PIECES:
        kept = set(sorted(pieces, key=len, reverse=True)[:MAX_PIECES])
        pieces = [piece for piece in pieces if piece in kept][:MAX_PIECES]
    return pieces


def _end_of(question: str) -> str:
    words = neutral(question).split(" ")
    return " ".join(words[-_MAX_WORDS_READ:])
