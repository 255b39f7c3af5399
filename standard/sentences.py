"""Sentences of a passage as exact spans, fast enough for every passage of every question (some 5 MB/s).

Made for the text that retrieval brings: prose, Markdown, lists, tables, lines cut by a PDF's page width. Spans never
overlap, carry no white space at their ends, and together hold every sign that is not white space. Where a sentence ends
within a block is the corpus's rule; what a block is, and that no span is endless, is decided here.
"""

from __future__ import annotations

import re

from standard.corpus.sentences import sentence_spans as sentences_of_prose

LONGEST = 500
"""Longer stretches without an end of sentence are split at a clause or word."""

_WRAPPED = 48  # a line at least this long may be the wrapped part of a paragraph; shorter ones stand for themselves
_BLOCK_START = re.compile(r"\s*(?:[-*+•–▪◦]\s|\d{1,3}[.)]\s|#{1,6}\s|\||>|```|[A-Z][\w /()-]{0,40}:\s)")
_STANDS_ALONE = re.compile(r"\s*(?:#{1,6}\s|\||```|[-=*_]{3,}\s*$)")
_TABLE_ROW = re.compile(r"\s*\|")
_CLAUSE = re.compile(r"[;:]\s|,\s|\s")


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """The sentences of `text` as half-open spans in code points, in order."""
    spans: list[tuple[int, int]] = []
    for start, end in _blocks(text):
        row = _TABLE_ROW.match(text, start, end)
        for span in [(start, end)] if row else sentences_of_prose(text, start, end):
            _add(spans, text, *span)
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


def _add(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    """Add a span without white space at its ends; an endless one in parts."""
    while True:
        part = text[start:end]
        start, end = start + len(part) - len(part.lstrip()), start + len(part.rstrip())
        if end - start <= LONGEST:
            break
        cut = start + LONGEST
        for match in _CLAUSE.finditer(text, start + LONGEST // 2, start + LONGEST):
            cut = match.end()
        spans.append((start, start + len(text[start:cut].rstrip())))
        start = cut
    if end > start:
        spans.append((start, end))
