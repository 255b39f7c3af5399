"""Sentences of a text as exact spans, fast enough for every passage of every question (about 10 MB/s).

Made for the text that retrieval brings: prose, Markdown, lists, tables, lines cut by a PDF's page width. Spans never
overlap, carry no white space at their ends, and together hold every sign that is not white space.
"""

from __future__ import annotations

import re

LONGEST = 500
"""Longer stretches without an end of sentence are split at a clause or word."""

_WRAPPED = 48  # a line at least this long may be the wrapped part of a paragraph; shorter ones stand for themselves
_BLOCK_START = re.compile(r"\s*(?:[-*+•–▪◦]\s|\d{1,3}[.)]\s|#{1,6}\s|\||>|```|[A-Z][\w /()-]{0,40}:\s)")
_STANDS_ALONE = re.compile(r"\s*(?:#{1,6}\s|\||```|[-=*_]{3,}\s*$)")
_END = re.compile(r"[.!?…]+[\"'”’»)\]*_]*(?=\s)|[。！？｡]+[”’」』）]*|[।॥؟۔]+(?=\s)")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'])(?:[A-Za-z]|(?:[A-Za-z]\.)+[A-Za-z]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Rev|Hon|Capt|Col|Gen|Lt|Sgt|No|Nos"
    r"|Art|Sec|Fig|Figs|Eq|Ref|Vol|Ch|App|Inc|Ltd|Co|Corp|Dept|Est|approx|appr|ca|cf|incl|excl|max|min|resp|vs|etc|al"
    r"|ext|tel|Tel|pp|ed|eds|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec|bzw|usw|Nr|Abs)\.$"
)
_LIST_NUMBER = re.compile(r"(?:^|\n)\s*\d{1,3}\.$")
_CLAUSE = re.compile(r"[;:]\s|,\s|\s")


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """The sentences of `text` as half-open spans in code points, in order."""
    spans: list[tuple[int, int]] = []
    for start, end in _blocks(text):
        begin = start
        for match in _END.finditer(text, start, end):
            if _ends_here(text, begin, match, end):
                _add(spans, text, begin, match.end())
                begin = match.end()
        _add(spans, text, begin, end)
    return spans


def _blocks(text: str) -> list[tuple[int, int]]:
    """Stretches of lines that may share a sentence: paragraphs, list items, single table rows and headings."""
    blocks: list[tuple[int, int]] = []
    start, at = 0, 0
    previous = ""
    for line in text.splitlines(keepends=True):
        fresh = (
            not line.strip()
            or len(previous.rstrip()) < _WRAPPED
            or _STANDS_ALONE.match(previous) is not None
            or _BLOCK_START.match(line) is not None
        )
        if fresh and at > start:
            blocks.append((start, at))
            start = at
        previous = line
        at += len(line)
    if at > start:
        blocks.append((start, at))
    return blocks


def _ends_here(text: str, begin: int, match: re.Match[str], end: int) -> bool:
    if text[match.start()] != "." or match.end() - match.start() > 1:
        return True
    after = text[match.end() : end].lstrip()[:1]
    if after.islower():
        return False
    head = text[max(begin, match.start() - 12) : match.end()]
    return _ABBREVIATION.search(head) is None and _LIST_NUMBER.search(head) is None


def _add(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    while end - start > LONGEST:
        cut = start + LONGEST
        for match in _CLAUSE.finditer(text, start + LONGEST // 2, start + LONGEST):
            cut = match.end()
        _add(spans, text, start, cut)
        start = cut
        while start < end and text[start].isspace():
            start += 1
    if end > start:
        spans.append((start, end))
