"""Text with source tags in, clean text and citations out: the same for a stream and for a whole.

A citation supports what stands before its marker: the sentence, and sentences before it in the same line that have no
marker of their own. A marker at the start of a line (or of the answer) supports the sentence after it. A tag that names
no source is dropped and counted. Where none of the sources that a marker names shares anything with its claim while
another says nearly the same, the citation moves there: models miscount their sources.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from standard.citations.attribute import LEAST_SHARED
from standard.citations.markers import Marker, MarkerParser
from standard.citations.quote import QuotedPassage
from standard.sentences import sentence_spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from standard.domain.answer import Citation
    from standard.sandbox.render import TaggedPassage

_LEAD = re.compile(r"(?:[\s.,;:!?…)\]»”’*_]|[-+•>#]+\s|\d{1,3}[.)]\s)*")
_WORD = re.compile(r"\w")
_Match: TypeAlias = tuple[float, tuple[int, int]]


class CitationStream:
    """Feed it a model's text; it yields what to show and what to cite. `sources` are the passages the model saw."""

    def __init__(self, sources: Sequence[TaggedPassage]) -> None:
        self._sources = {int(item.tag[1:]): QuotedPassage(item.passage) for item in sources}
        self._parser = MarkerParser(self._sources.keys())
        self._text = ""
        self._cited_to = 0  # end of the last span that has a citation
        self._span: tuple[int, int] | None = None
        self._leading: tuple[int, tuple[int, ...]] | None = None  # a marker whose sentence is yet to come
        self._seen: set[tuple[str, int, int]] = set()
        self.citations: list[Citation] = []
        self.dropped = 0

    @property
    def text(self) -> str:
        """The clean text so far; citations point into it."""
        return self._text

    def feed(self, delta: str) -> list[str | Citation]:
        """Take a delta; return clean text and citations in the order in which to emit them."""
        return [item for piece in self._parser.feed(delta) for item in self._handle(piece)]

    def finish(self) -> list[str | Citation]:
        """End the text: what was held back, and citations that waited for their sentence."""
        items = [item for piece in self._parser.finish() for item in self._handle(piece)]
        return [*items, *self._settle_leading(len(self._text))]

    def _handle(self, piece: str | Marker) -> Iterator[str | Citation]:
        if isinstance(piece, Marker):
            yield from self._cite(piece.numbers)
            return
        break_at = piece.find("\n")
        if self._leading is not None and break_at >= 0:
            head = piece[:break_at]
            if _WORD.search(self._text[self._leading[0] :] + head):
                self._text += head
                if head:
                    yield head
                yield from self._settle_leading(len(self._text))
                piece = piece[break_at:]
        self._text += piece
        yield piece

    def _cite(self, numbers: tuple[int, ...]) -> Iterator[Citation]:
        here = len(self._text)
        yield from self._settle_leading(here)
        numbers = tuple(number for number in numbers if self._is_known(number))
        if not numbers:
            return
        line = self._text.rfind("\n") + 1
        start = max(self._cited_to, line)
        lead = _LEAD.match(self._text, start)
        start = lead.end() if lead is not None else start
        if start < here and _WORD.search(self._text, start):
            self._span = (start, here)
        elif self._span is None or self._span[1] < line:  # else it is a further marker of the same sentence
            self._leading = (here, numbers)
            return
        self._cited_to = here
        yield from self._make(numbers, self._span)

    def _is_known(self, number: int) -> bool:
        known = number in self._sources
        self.dropped += not known
        return known

    def _settle_leading(self, end: int) -> Iterator[Citation]:
        """Give a marker that stood before its sentence the first sentence that followed."""
        if self._leading is None:
            return
        at, numbers = self._leading
        self._leading = None
        spans = [(at + start, at + stop) for start, stop in sentence_spans(self._text[at:end])]
        spans = [span for span in spans if _WORD.search(self._text, *span)]
        if not spans:
            self.dropped += len(numbers)
            return
        self._span = spans[0]
        self._cited_to = spans[0][1]
        yield from self._make(numbers, self._span)

    def _make(self, numbers: tuple[int, ...], span: tuple[int, int]) -> Iterator[Citation]:
        claim = self._text[slice(*span)]
        matches = {number: self._sources[number].best_match(claim) for number in numbers}
        moved = self._better(claim, matches)
        if moved:
            self.dropped += len(matches) - 1
            matches = moved
        for number, (_, quoted) in matches.items():
            source = self._sources[number]
            if (source.passage.passage_id, *span) in self._seen:
                continue
            self._seen.add((source.passage.passage_id, *span))
            citation = source.cite(quoted, span, moved=bool(moved))
            self.citations.append(citation)
            yield citation

    def _better(self, claim: str, named: dict[int, _Match]) -> dict[int, _Match]:
        """Return the source that bears the claim out, with its match, where no named one does; else nothing."""
        if max(shared for shared, _ in named.values()) > 0.0:
            return {}
        others = {number: source.best_match(claim) for number, source in self._sources.items() if number not in named}
        best = max(others, key=lambda number: others[number][0], default=None)
        if best is None or others[best][0] < LEAST_SHARED:
            return {}
        return {best: others[best]}
