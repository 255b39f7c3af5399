"""Names in running text: what could be the title of another document, or an entity that other documents speak of.

No model: capitals and digits, which is how names, codes and titles are written in most languages with two cases. Text
in a script without case yields only codes with digits.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_WORDS = 8
"""Words of a name."""
MAX_SPANS = 1_500
"""Windows taken from one text."""

_WORD = re.compile(r"\w[\w'’.&/-]*")
_EDGE = ".,;:'’-/&"
_POSSESSIVE = ("'s", "’s")
_SENTENCE_END = re.compile(r"[.!?:;\n•|]\W*$")

_CONNECTORS = frozenset("of the for de la le du des van von der den di da del dos &".split())  # noqa: SIM905
_LEADING = _CONNECTORS | frozenset(
    "a an and at by from in on to with as if when since until after before during this that these".split()  # noqa: SIM905
)
_MONTHS = "january february march april may june july august september october november december"
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday"
_CALENDAR = frozenset([*_MONTHS.split(), *_WEEKDAYS.split()])
_HAS_DIGIT = re.compile(r"\d")
_HAS_LETTER = re.compile(r"[^\W\d_]")
_LAST_NUMBER = re.compile(r"(?: (?:\d+|and|to|at|on|in|of))* \d+$")


def title_spans(text: str, *, any_case: bool = False) -> list[str]:
    """Return the windows of up to MAX_WORDS words that begin with a capital or a digit, in lower case, each once.

    With `any_case` (for questions, which people type as they like) also windows of two words and more that do not.
    Windows do not reach over line breaks. Every title that stands in the text is among them.
    """
    spans: dict[str, None] = {}
    words = [(match.start(), match.end()) for match in _WORD.finditer(text)]
    for first, (start, _) in enumerate(words):
        capital = _capital(text[start])
        if not (capital or any_case):
            continue
        for last in range(first, min(len(words), first + MAX_WORDS)):
            window = text[start : words[last][1]]
            if "\n" in window or len(spans) >= MAX_SPANS:
                break
            if capital or last > first:
                spans.update(dict.fromkeys(_variants(window.lower())))
    return list(spans)


def strong_names(text: str, *, limit: int = 40) -> list[str]:
    """Return runs of capitalised words and codes ("MV Kittiwake", "INC-2023-008"), in order, each once.

    Small words between capitals belong to the run ("Bank of England"), those that lead it do not ("The Bank"). A run
    with a number at its end comes without it too ("Berth 2", "Berth"). Dates and bare numbers are no names. A single
    capitalised word that opens a sentence counts only if it stands elsewhere in the text too, since any word may open
    one.
    """
    runs = list(_runs(text))
    inside = {name for name, opens in runs if not opens}
    names: dict[str, None] = {}
    for name, opens in runs:
        if not opens or " " in name or _HAS_DIGIT.search(name) or name in inside:
            names.setdefault(name)
            shorter = _LAST_NUMBER.sub("", name)
            if shorter != name and not _is_date(shorter):
                names.setdefault(shorter)
        if len(names) >= limit:
            break
    return list(names)


def _runs(text: str) -> Iterator[tuple[str, bool]]:
    """Yield (name, whether it opens a sentence)."""
    words = list(_WORD.finditer(text))
    index = 0
    while index < len(words):
        word = words[index]
        if not (_capital(word[0][0]) and len(word[0].strip(_EDGE)) > 1):
            index += 1
            continue
        last = index
        ahead = index
        while not _closed(words[last][0]) and ahead + 1 < len(words) and ahead + 1 - index < MAX_WORDS:
            ahead += 1
            if text[words[ahead - 1].end() : words[ahead].start()].strip(" \t\"'“”()"):
                break
            if _capital(words[ahead][0][0]):
                last = ahead
            elif words[ahead][0].lower() not in _CONNECTORS:
                break
        name = text[word.start() : words[last].end()].rstrip(_EDGE)
        for ending in _POSSESSIVE:
            name = name.removesuffix(ending)
        before = text[max(0, word.start() - 8) : word.start()]
        opens = not before.strip() or _SENTENCE_END.search(before) is not None
        while _leads(name.partition(" ")[0]):
            name, opens = name.partition(" ")[2], False
        if name and "\n" not in name and not _is_date(name):
            yield name, opens
            if opens and name.count(" ") > 1:
                yield name.partition(" ")[2], False  # "Ask Sunniva Blake"
        index = last + 1


def _is_date(name: str) -> bool:
    """Tell whether a name is made of numbers, months, weekdays and small words alone."""
    return all(_leads(word) or word.lower() in _CALENDAR for word in name.split())


def _leads(word: str) -> bool:
    """Tell whether a word at the beginning of a run is no part of the name: a small word, or a bare number."""
    return word.lower() in _LEADING or (word != "" and not _HAS_LETTER.search(word))


def _closed(word: str) -> bool:
    """Tell whether no name goes on after this word: a possessive, or a full stop that is no abbreviation's."""
    return word.endswith(_POSSESSIVE) or (word.endswith(".") and (len(word) > 3 or word[:-1].isdigit()))


def _variants(window: str) -> Iterator[str]:
    trimmed = window.rstrip(_EDGE)
    yield trimmed
    if window != trimmed and window.endswith("."):
        yield window  # "Washington, D.C."
    for ending in _POSSESSIVE:
        if trimmed.endswith(ending):
            yield trimmed.removesuffix(ending)


def _capital(character: str) -> bool:
    return character.isupper() or character.istitle() or character.isdigit()
