"""PDF: the text of its pages in reading order, with the headings its outline names.

Lines are put together again: a word broken at a line's end is whole afterwards, a running head or page number that most
pages repeat is left out. What has no text (a scan) is refused with the way out, not stored empty.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO

import pypdf
from pypdf.generic import Destination

from standard.corpus.readers.extracted import Extracted, Unreadable, one_line, title_from, without_debris

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PAGES = 10_000
MAX_SECONDS = 300.0
_BROKEN = re.compile(r"(\w+)[-\u2010]\n(\w+)")
_WORD = re.compile(r"\w+(?:-\w+)*")
_PAGE_OF_PAGES = re.compile(r"[-–—\s]*page\s*\d{1,5}\s*(?:of|/)\s*\d{1,5}[-–—\s]*", re.IGNORECASE)
_PAGE_NUMBER = re.compile(r"(?:page\s*)?[-–—\s]*\d{1,5}(?:\s*(?:of|/)\s*\d{1,5})?[-–—\s]*", re.IGNORECASE)


def read_pdf(stream: BinaryIO) -> Extracted:
    """Read a PDF.

    Raises Unreadable (encrypted, without text, slower than 300 s), or whatever pypdf raises for a damaged file.
    """
    logging.getLogger("pypdf").setLevel(logging.ERROR)
    until = time.monotonic() + MAX_SECONDS
    reader = pypdf.PdfReader(stream)
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unreadable("is encrypted; save it without a password")
    if len(reader.pages) > MAX_PAGES:
        raise Unreadable(f"has {len(reader.pages)} pages, {MAX_PAGES} are read")
    pages = []
    for page in reader.pages:
        pages.append(without_debris(page.extract_text()).strip())
        if time.monotonic() > until:
            raise Unreadable(f"takes longer than {MAX_SECONDS:.0f} s to read")
    headings = dict(_headings(reader))
    title = str((reader.metadata.title if reader.metadata is not None else None) or "")
    if not any(pages):
        raise Unreadable("has no text; if it is a scan, run character recognition (OCR) on it first")
    text = _mark_headings(_mend("\n\n".join(_without_furniture(pages))), headings)
    return Extracted(title=title_from(title), text=text)


def _headings(reader: pypdf.PdfReader) -> Iterator[tuple[str, int]]:
    """Yield the outline's titles with their levels, 1-6."""
    stack: list[tuple[object, int]] = [(list(reader.outline), 1)]
    while stack:
        entry, level = stack.pop()
        if isinstance(entry, list):
            if level < 50:
                stack += [(inner, level + isinstance(inner, list)) for inner in reversed(entry)]
        elif isinstance(entry, Destination) and (title := one_line(without_debris(str(entry.title)))):
            yield title, min(level, 6)


def _without_furniture(pages: list[str]) -> list[str]:
    """Drop first and last lines that most pages repeat but for their digits, running page numbers, `Page 1 of 1`."""
    lines = [page.split("\n") for page in pages]
    for place in (0, -1):
        repeated = Counter(re.sub(r"\d+", "0", page[place].strip()) for page in lines if page[place].strip())
        numbered = _are_page_numbers([page[place] for page in lines])
        for page in lines:
            shape = re.sub(r"\d+", "0", page[place].strip())
            furniture = numbered or _PAGE_OF_PAGES.fullmatch(page[place])
            if len(page) > 1 and (furniture or (len(pages) >= 3 and repeated[shape] > 0.6 * len(pages))):
                del page[place]
    return ["\n".join(page) for page in lines]


def _are_page_numbers(lines: list[str]) -> bool:
    """Tell whether the lines of consecutive pages are consecutive numbers."""
    numbers = [
        int(digits[0]) for line in lines if _PAGE_NUMBER.fullmatch(line) and (digits := re.findall(r"\d+", line))
    ]
    return len(numbers) == len(lines) > 1 and all(after == before + 1 for before, after in pairwise(numbers))


def _mend(text: str) -> str:
    """Put words together that a line's end parts; a hyphen stays where the document writes it in the word elsewhere."""
    written = set(_WORD.findall(text.lower()))

    def mended(match: re.Match[str]) -> str:
        first, second = match[1], match[2]
        hyphenated = f"{first}-{second}"
        if not second[0].islower() or (hyphenated.lower() in written and (first + second).lower() not in written):
            return hyphenated
        return first + second

    return _BROKEN.sub(mended, text)


def _mark_headings(text: str, headings: dict[str, int]) -> str:
    """Write the lines that the outline names as Markdown headings, also where a title takes two lines."""
    if not headings:
        return text
    lines = text.split("\n")
    marked: list[str] = []
    index = 0
    while index < len(lines):
        for taken in (1, 2, 3):
            title = one_line(" ".join(lines[index : index + taken]))
            if title in headings:
                marked += ["", "#" * headings[title] + " " + title, ""]
                index += taken
                break
        else:
            marked.append(lines[index])
            index += 1
    return re.sub(r"\n{3,}", "\n\n", "\n".join(marked)).strip("\n")
