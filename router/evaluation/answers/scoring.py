"""How right an answer is: exact match and F1 as SQuAD scores them, and whether the answer is said at all.

Extracted answers are whole sentences, which exact match never rewards; `says` asks for the gold words in a row, on word
boundaries. Source of EM and F1: Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text", 2016.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_MARKS = str.maketrans(dict.fromkeys(string.punctuation + "“”‘’„«»–—…·₹€£", " "))
_SOURCE_TAGS = re.compile(r"\[S\d+(?:\s*,\s*S\d+)*\]")
_TRUTH = frozenset({"yes", "no"})


def words(text: str) -> list[str]:
    """The words that are compared: lower case, without punctuation, articles and source tags."""
    plain = _SOURCE_TAGS.sub(" ", text).casefold().translate(_MARKS)
    return _ARTICLES.sub(" ", plain).split()


def exact_match(answer: str, gold: Sequence[str]) -> float:
    """1 if the answer is one of the gold answers, word for word, else 0."""
    said = words(answer)
    return float(any(said == words(one) for one in gold))


def f1(answer: str, gold: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of words (0-1), against the gold answer that fits best."""
    said = Counter(words(answer))
    return max((_f1(said, Counter(words(one))) for one in gold), default=0.0)


def says(text: str, gold: Sequence[str]) -> bool:
    """Do the words of some gold answer stand in the text in a row?"""
    body = f" {' '.join(words(text))} "
    return any(f" {' '.join(wanted)} " in body for one in gold if (wanted := words(one)))


def is_yes_or_no(gold: Sequence[str]) -> bool:
    """Is the question answered by yes or no? Such an answer stands in no passage."""
    return any(one.strip(" .").casefold() in _TRUTH for one in gold)


def _f1(said: Counter[str], wanted: Counter[str]) -> float:
    shared = (said & wanted).total()
    return 2.0 * shared / (said.total() + wanted.total()) if shared else 0.0
