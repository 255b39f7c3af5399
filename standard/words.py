"""Words of questions, answers and passages, made comparable: what quotes and extractive answers count with."""

from __future__ import annotations

import re
from functools import lru_cache

# Letters and digits with inner apostrophes, points and commas of numbers (4.5, 1,200, 12:30); scripts without spaces by
# single characters, which are paired below.
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af\u0e00-\u0e7f]+"
    r"|\d+(?:[.,:/-]\d+)*(?:[a-zA-Z%°]{1,4}\b|%)?"
    r"|[^\W\d_]+(?:['’][^\W\d_]+)?\d*"
)
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af\u0e00-\u0e7f]")
_ENDINGS = (
    "ization", "isation", "ations", "ation", "ments", "ment", "ings", "ing", "ions", "ion", "ies", "ied", "ers", "er",
    "es", "ed", "ly", "al", "e", "s", "y",
)  # fmt: skip

STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any are as at be because been before being below between both but by
    can could did do does doing done down during each either else ever for from further get gets give given go got had
    has have having he her here hers him his how i if im in into is isn't it it's its itself ive just let like many may
    me might more most much must my need no nor not of off on once one only or other our ours out over own please same
    say says shall she should since so some such tell than that that's the their them then there these they thing this
    those though through to too under until up upon us use used very want was we were what what's when where whether
    which while who whom whose why will with within without would yet you your yours
    """.split()  # noqa: SIM905 - a list of words reads better as text
)


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """A rough English stem of a casefolded word: possessive and one common ending off, at least three letters stay."""
    word = word.replace("’", "'").removesuffix("'s").replace("'", "")
    if not word.isalpha():
        return word.replace(",", "")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    # stopped/stop, cancelled/cancel: a doubled consonant before an ending is one
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiou":
        word = word[:-1]
    return word


def words(text: str) -> list[str]:
    """The casefolded words of a text, in order; text without spaces (Chinese, Japanese, Thai …) as pairs of signs."""
    plain = _WORD.findall(text.casefold())
    if text.isascii() or not _UNSPACED.search(text):
        return plain
    found: list[str] = []
    for word in plain:
        if _UNSPACED.match(word) and len(word) > 1:
            found.extend(word[at : at + 2] for at in range(len(word) - 1))
        else:
            found.append(word)
    return found


def content_stems(text: str) -> list[str]:
    """Stems of the words that are no stop words, in order, repeats included."""
    return [stem(word) for word in words(text) if word not in STOP_WORDS]


def is_number(term: str) -> bool:
    """Whether a stem holds a digit: a number, a date, a code."""
    return any(sign.isdigit() for sign in term)
