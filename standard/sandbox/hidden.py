"""Prevents: instructions in what a page holds and no reader sees.

Two kinds. Invisible: tag characters, variation selectors and zero-width signs that spell out a message, text that is
stored backwards and shown forwards. Unseen: comments, hidden elements, alternative texts, front matter. The first never
reaches a prompt; the second is text like any other and is told apart here, so that an instruction there weighs more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from standard.sandbox.readable import as_text

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Hidden:
    """Text that no reader sees. `start` and `end` are its place; `kind` says how it is hidden."""

    start: int
    end: int
    text: str
    kind: str


_TAGS = re.compile("[\U000e0020-\U000e007e]{3,}")
_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{2,6}\U000e007f")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}")
_UNSEEN = "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
_BITS = re.compile(f"[{_UNSEEN}]{{16,}}")
_ANY_INVISIBLE = re.compile(f"[{_UNSEEN}\ufe00-\ufe0f\U000e0000-\U000e01ef]")
_OVERRIDE = re.compile("\u202e([^\u202a-\u202e\u2066-\u2069\n]{4,4000})")


def invisible_messages(raw: str) -> list[Hidden]:
    """Messages spelled with signs that nobody sees, in raw text (not canonical), in order of their places."""
    if raw.isascii() or not _ANY_INVISIBLE.search(raw):
        return []
    found = list(_tag_messages(raw))
    for match in _SELECTORS.finditer(raw):
        said = as_text(bytes(_selector_byte(sign, 16) for sign in match[0]))
        said = said or as_text(bytes(_selector_byte(sign, 0) for sign in match[0]))
        if said:
            found.append(Hidden(*match.span(), said, "variation-selectors"))
    for match in _BITS.finditer(raw):
        said = _binary_message(match[0])
        if said:
            found.append(Hidden(*match.span(), said, "zero-width"))
    found += [Hidden(*match.span(1), match[1][::-1], "bidi") for match in _OVERRIDE.finditer(raw)]
    return sorted(found, key=lambda item: item.start)


def _tag_messages(raw: str) -> Iterator[Hidden]:
    flags = {match.start() + 1 for match in _FLAG.finditer(raw)}
    for match in _TAGS.finditer(raw):
        if match.start() not in flags:
            yield Hidden(*match.span(), "".join(chr(ord(sign) - 0xE0000) for sign in match[0]), "tag-characters")


def _selector_byte(sign: str, shift: int) -> int:
    """The byte a variation selector stands for; the supplement counts from 16 on, or from 0."""
    code = ord(sign)
    return code - 0xFE00 if code < 0xE0100 else (code - 0xE0100 + shift) % 256


def _binary_message(run: str) -> str | None:
    """What two signs spell as zeros and ones, whichever is which; a third one may stand between the letters."""
    run = run[:32_768]
    signs = sorted(set(run), key=run.count, reverse=True)
    if len(signs) < 2:
        return None
    parted = len(signs) > 2
    for zero, one in (signs[:2], signs[1::-1]):
        bits = "".join("0" if sign == zero else "1" if sign == one else " " for sign in run)
        if parted:
            said = as_text(bytes(int(letter, 2) % 256 for letter in bits.split()))
            if said:
                return said
            bits = bits.replace(" ", "")
        for size in (8, 7):
            whole = len(bits) // size * size
            said = as_text(bytes(int(bits[at : at + size], 2) for at in range(0, whole, size)))
            if said:
                return said
    return None


_LONGEST_PIECE = 20_000
_MARKDOWN_COMMENT = re.compile(
    r"""^[ ]{0,3}\[[^\]\n]{0,80}\]:\s{0,3}(?:\#|<>)\s{0,3}
        (?:\(([^)\n]*)\)?|"([^"\n]*)"?|'([^'\n]*)'?)""",
    re.MULTILINE | re.VERBOSE,
)
_CONCEALED = re.compile(
    r"""<(?P<name>[a-z][a-z0-9]{0,15})\b[^<>]{0,400}?
        (?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|opacity\s*:\s*0(?:\.0+)?\b|\bhidden\b
          |color\s*:\s*(?:white|transparent|\#fff(?:fff)?)\b|aria-hidden|text-indent\s*:\s*-\d{3,}|left\s*:\s*-\d{3,})
        [^<>]{0,400}>""",
    re.IGNORECASE | re.VERBOSE,
)
_SCRIPT = re.compile(r"<(?P<name>script|style|template|noscript)\b[^<>]{0,400}>", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    r"""\b(?:alt|title|aria-label|data-[a-z-]{1,40}|content|placeholder|usercomment)\s*=\s*
        (?:"([^"<>]{12,4000})"|'([^'<>]{12,4000})')""",
    re.IGNORECASE | re.VERBOSE,
)
_IMAGE_ALT = re.compile(r"!\[([^\[\]\n]{12,2000})\]")
_FRONT_MATTER = re.compile(r"^---[ ]*\n((?:[^\n]{0,1000}\n){1,60}?)---[ ]*$", re.MULTILINE)
_FIELD = re.compile(r"^[ ]{0,8}[\w.-]{1,60}:[ ]*(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^\n]*))$", re.MULTILINE)
_PATTERNS = (
    ("]:", "comment", _MARKDOWN_COMMENT),
    ("=", "attribute", _ATTRIBUTE),
    ("![", "alt-text", _IMAGE_ALT),
)


def unseen_text(text: str) -> list[Hidden]:
    """Text that a rendered page does not show, with where it stands in `text`; places may overlap."""
    found: list[Hidden] = []
    if "<" in text:
        found += _comments(text)
        found += _elements(text, _CONCEALED, "concealed")
        found += _elements(text, _SCRIPT, "script")
    for hint, kind, pattern in _PATTERNS:
        if hint in text:
            found += [
                Hidden(*match.span(), said, kind)
                for match in pattern.finditer(text)
                if (said := _first_group(match)).strip()
            ]
    if "---" in text:
        for match in _FRONT_MATTER.finditer(text):
            found += _fields(match[1], match.start(1))
    return found


def _comments(text: str) -> Iterator[Hidden]:
    """HTML comments; one that is never closed hides what follows, as in a browser."""
    start = text.find("<!--")
    while start >= 0:
        end = text.find("-->", start + 4, start + _LONGEST_PIECE)
        stop = min(len(text), start + _LONGEST_PIECE) if end < 0 else end
        if text[start + 4 : stop].strip():
            yield Hidden(start, stop if end < 0 else end + 3, text[start + 4 : stop], "comment")
        start = text.find("<!--", stop)


def _elements(text: str, opening: re.Pattern[str], kind: str) -> Iterator[Hidden]:
    """What stands in elements whose opening tag matches, up to the next closing tag of that name."""
    lower, covered = "", 0
    for match in opening.finditer(text):
        if match.start() < covered:
            continue  # within the last piece
        lower = lower or text.lower()
        if len(lower) != len(text):
            lower = text  # some capitals take more room in lower case; closing tags in capitals are then missed
        limit = match.end() + _LONGEST_PIECE
        end = lower.find(f"</{match['name'].lower()}", match.end(), limit)
        stop = covered = min(len(text), limit) if end < 0 else end
        if text[match.end() : stop].strip():
            closing = text.find(">", stop, stop + 40)
            yield Hidden(match.start(), closing + 1 if closing >= 0 else stop, text[match.end() : stop], kind)


def _fields(front_matter: str, offset: int) -> list[Hidden]:
    return [
        Hidden(offset + field.start(), offset + field.end(), _first_group(field), "front-matter")
        for field in _FIELD.finditer(front_matter)
    ]


def _first_group(match: re.Match[str]) -> str:
    return next((group for group in match.groups() if group is not None), "")
