"""Read a document's lines as headings, list items, table rows, code and prose, and its prose as sentences.

The text is Markdown or plain text; readers of other formats write headings and tables the Markdown way. Only what
matters for cutting is recognised: ATX and setext headings, fences, list items, table rows, blank lines (CommonMark
0.31, sections 4 and 5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from standard.corpus.embeddable import embeddable
from standard.corpus.sentences import sentence_spans

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*?)[ \t]*#*$")
_UNDERLINE = re.compile(r"(=+|-{2,})$")
_FENCE = re.compile(r"(```+|~~~+)")
_ITEM = re.compile(r"(?:[-*+•·▪◦]|\d{1,3}[.)])[ \t]|\|")
_HEAD = 20_000  # code points in which a title is looked for
_MAX_HEADING = 300  # a longer "heading" is a paragraph that begins with a number sign


@dataclass(frozen=True, slots=True)
class Unit:
    """A heading, sentence, table row or line of code: what a chunk is made of. Offsets in the document, half-open.

    `heading_level` is 1-6 for a heading, else 0. `path` holds the headings in force, outermost first, a heading's own
    included.
    """

    start: int
    end: int
    heading_level: int
    path: tuple[str, ...]

    def part(self, start: int, end: int) -> Unit:
        """Return the part of this unit that spans start to end."""
        return Unit(start, end, self.heading_level, self.path)


def first_heading(text: str) -> str:
    """Return the words of the first heading of the highest level near the beginning; "" where there is none."""
    headings = [unit for unit in units_of(text[:_HEAD]) if unit.heading_level]
    return embeddable(min(headings, key=lambda unit: unit.heading_level).path[-1]) if headings else ""


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    end: int


def units_of(text: str) -> list[Unit]:
    """Return the units of `text`, in order. Together they hold every non-blank character, each once. Linear time."""
    units: list[Unit] = []
    headings: list[tuple[int, str]] = []
    path: tuple[str, ...] = ()
    paragraph: list[_Line] = []
    fence = ""

    def add(start: int, end: int, level: int = 0) -> None:
        units.append(Unit(start, end, level, path))

    def flush() -> None:
        if paragraph:
            for start, end in sentence_spans(text, paragraph[0].start, paragraph[-1].end):
                add(start, end)
            paragraph.clear()

    def enter(level: int, name: str) -> None:
        nonlocal path
        while headings and headings[-1][0] >= level:
            headings.pop()
        headings.append((level, name))
        path = tuple(known for _, known in headings)

    for line in _lines(text):
        if line.start == line.end:
            flush()
            continue
        if fence:
            add(line.start, line.end)
            if text.startswith(fence, line.start) and not text[line.start : line.end].strip(fence[0]):
                fence = ""
            continue
        if opening := _FENCE.match(text, line.start, line.end):
            flush()
            add(line.start, line.end)
            fence = opening[1]
            continue
        heading = _HEADING.match(text, line.start, line.end)
        if heading is not None and line.end - line.start <= _MAX_HEADING:
            flush()
            enter(len(heading[1]), heading[2])
            add(line.start, line.end, len(heading[1]))
            continue
        underline = _UNDERLINE.match(text, line.start, line.end)
        if underline is not None and len(paragraph) == 1 and _may_be_title(text, paragraph[0]):
            title = paragraph.pop()
            level = 1 if underline[1][0] == "=" else 2
            enter(level, text[title.start : title.end])
            add(title.start, line.end, level)
            continue
        if _ITEM.match(text, line.start, line.end):
            flush()
            if text[line.start] == "|":
                add(line.start, line.end)
                continue
        paragraph.append(line)
    flush()
    return units


def _may_be_title(text: str, line: _Line) -> bool:
    """Tell whether an underlined line is a heading: people also draw a rule right below a sentence."""
    return line.end - line.start <= _MAX_HEADING and text[line.end - 1] not in ".!?:;,。！？"


def _lines(text: str) -> Iterator[_Line]:
    """Yield each line without the blanks around it; a blank line is empty."""
    position = 0
    length = len(text)
    while position < length:
        stop = text.find("\n", position)
        stop = length if stop < 0 else stop
        part = text[position:stop]
        stripped = part.strip()
        first = position + len(part) - len(part.lstrip()) if stripped else position
        yield _Line(first, first + len(stripped))
        position = stop + 1
