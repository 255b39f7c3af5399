"""Where sentences end, in any script, as spans of the text itself.

Rules rather than a library: pysbd needs about 4 ms a passage, as long as an embedding, and knows one language at a
time. These rules err towards too few boundaries (a sentence too long is still read; a broken one loses its subject): a
full stop ends no sentence after a title, an initial or a dotted abbreviation, nor before a lower-case letter.
Terminators: the Sentence_Terminal property of Unicode (UAX 29), for the scripts in daily use.
"""

from __future__ import annotations

import re

_CLOSERS = "\"'”’»›)\\]」』）】〉》"
_SOFT = ".!?…‥؟۔։።᙮"
# A run is read from its first sign alone: from each of them, a line of dots would cost the square of its length.
_CANDIDATE = re.compile(
    rf"(?<![{_SOFT}])(?P<soft>[{_SOFT}]++)[{_CLOSERS}*_`]*(?=\s)"
    rf"|(?P<hard>[。！？｡।॥။៕᠃꘎]+)[{_CLOSERS}]*"
)  # fmt: skip
_LAST_WORD = re.compile(r"[^\s(\[\"'“‘«]+$")
_DOTTED = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]?")
# Abbreviations that stand before something: they end no sentence, whatever follows.
_LEADING_WORDS = (
    "mr mrs ms mx dr prof st sr jr rev hon gov sen rep pres gen col maj capt lt sgt cmdr messrs mme mlle hr fr sra "
    "dra vs cf viz eg ie approx ca resp fig figs eq eqs sec sect ch chap art arts para vol vols ed eds pp tab ref refs "
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri bzw bspw vgl nr str tel abs evtl ggf inkl"
)
_LEADING = frozenset(_LEADING_WORDS.split())
_BEFORE_NUMBER = frozenset(("no", "nos", "p", "n", "º", "item", "art", "§"))
_WINDOW = 64  # code points looked back for the last word


def sentence_spans(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Split text[start:end] into sentences: half-open spans without blanks at either side, in order, none empty.

    Together they hold every non-blank character of the range. Linear in its length.
    """
    spans: list[tuple[int, int]] = []
    begin = start
    for match in _CANDIDATE.finditer(text, start, end):
        if match["hard"] or _ends_sentence(text, begin, match, end):
            _add(spans, text, begin, match.end())
            begin = match.end()
    _add(spans, text, begin, end)
    return spans


def _add(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    part = text[start:end]
    stripped = part.strip()
    if stripped:
        first = start + len(part) - len(part.lstrip())
        spans.append((first, first + len(stripped)))


def _ends_sentence(text: str, begin: int, match: re.Match[str], end: int) -> bool:
    following = text[match.end() : min(end, match.end() + _WINDOW)].lstrip()
    if not following:
        return True
    head = following.lstrip("\"'“‘«‹([「『*_`")[:1] or following[0]
    if match["soft"] in ("…", "...") or match["soft"][0] == ".":
        if head.islower():
            return False
    elif match["soft"][0] in "!?" and head.islower():
        return False  # "Yahoo! is", "what?" he asked
    if match["soft"] != ".":
        return True
    word = _LAST_WORD.search(text, max(begin, match.start() - _WINDOW), match.start())
    if word is None:
        return True
    last = word[0]
    bare = last.lower().strip("*_`")
    if bare in _LEADING or (bare in _BEFORE_NUMBER and head.isdigit()):
        return False
    if len(bare) == 1 and bare.isalpha() and last.isupper():
        return False  # an initial
    if bare.isdigit() and len(bare) <= 3 and not text[begin : word.start()].strip():
        return False  # the number of a list item
    return not (_DOTTED.fullmatch(last) and "." in last)
