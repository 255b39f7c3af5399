"""Prevents: source tags that leak into answers, above all those that a stream splits.

A marker is [S1], [S1, S3], [S1-S3], [S1; S2 and S4], 【S1】 or such in round brackets. It goes, with the blanks before
it and with a comma or "and" between two of them. Where a tag is written to the name before it inside code (`rows[S1]`),
it is an index and stays; inside code, so does one that names no source. However the text is cut into deltas, the pieces
add up to the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

LONGEST_MARKER = 64
"""Code points that are held back at most while a marker may be coming."""
_MOST_TAGS = 40

_OPENING = "[【("
_TAG = r"[sS]\s?(\d{1,4})"
_JOIN = r"\s?(?:[,;&/+]|,?\s?(?:and|or|und)\b)?\s?"
_INNER = re.compile(
    rf"\s?{_TAG}(?:{_JOIN}{_TAG}|\s?(?:-|–|—|to)\s?[sS]?\s?\d{{1,4}})*\s?"
    r"(?:†[^\[\]【】\n]{0,40}|[,:]?\s?(?:pp?|page|lines?|L)\.?\s?\d[\d\s–-]{0,8})?\s?"
)
_MAY_BECOME = re.compile(r"\(?\s?(?:[\[【](?:\s?(?:[sS](?:\s?(?:\d[^\[\]【】\n]*)?)?)?)?)?")
_CUT_OFF = re.compile(r"\(?\s?[\[【]\s?[sS]?\s?(?:\d[^\[\]【】\n]*)?")
_TAGS_IN = re.compile(r"[sS]?\s?(\d{1,4})(?:\s?(?:-|–|—|to)\s?[sS]?\s?(\d{1,4}))?")
_LINK = re.compile(r"\s{0,2}(?:[,;&]\s{0,2})?(?:a(?:n(?:d(?:\s{1,2})?)?)?)?")
_SPECIAL = re.compile(r"[\[【(`]")
_CLOSING = frozenset(".,;:!?)]}…»”’。，；：！？、）】」")


@dataclass(frozen=True, slots=True)
class Marker:
    """Sources named at one place of the text: numbers of S1, S2 … in order, without repeats."""

    numbers: tuple[int, ...]


class MarkerParser:
    """Feed it deltas; it gives back clean text and markers in their order. `known` holds the numbers of sources."""

    def __init__(self, known: Collection[int]) -> None:
        self._known = known
        self._out: list[str | Marker] = []
        self._candidate = ""  # what may become a marker
        self._held = ""  # white space not yet given out
        self._after_marker = False
        self._before = ""  # white space that stood before the last marker
        self._link = ""  # what followed a marker and may join it to the next
        self._in_parentheses = False
        self._last = ""  # the last sign given out
        self._code = _CodeState()

    def feed(self, delta: str) -> list[str | Marker]:
        """Take a delta; return what is certain now."""
        if self._candidate or self._after_marker or _SPECIAL.search(delta):
            for sign in delta:
                self._take(sign)
        else:
            self._take_ordinary(delta)
        return self._given()

    def finish(self) -> list[str | Marker]:
        """End the text: a marker that was cut off goes, trailing white space goes."""
        if self._candidate:
            candidate, self._candidate = self._candidate, ""
            bare = candidate.strip("( [【")
            if not (bare and _CUT_OFF.fullmatch(candidate)):
                self._flush_link()
                for sign in candidate:
                    self._plain(sign)
        if self._link.strip():
            self._flush_link()
        return self._given()

    def _given(self) -> list[str | Marker]:
        merged: list[str | Marker] = []
        for piece in self._out:
            if isinstance(piece, str) and merged and isinstance(merged[-1], str):
                merged[-1] += piece
            else:
                merged.append(piece)
        self._out = []
        return merged

    def _take_ordinary(self, text: str) -> None:
        """The same as taking each sign, for text that cannot be or touch a marker."""
        body = text.rstrip()
        if body:
            shown = (self._held if self._last else "") + body
            shown = shown if self._last else shown.lstrip()
            self._code.see(shown)
            self._last = body[-1]
            self._out.append(shown)
            self._held = text[len(body) :]
        else:
            self._held += text

    def _take(self, sign: str) -> None:
        if self._candidate:
            self._grow(sign)
        elif sign in _OPENING:
            self._candidate = sign
        elif self._after_marker and self._in_parentheses and sign == ")":
            self._in_parentheses, self._link = False, ""
        elif self._after_marker and _LINK.fullmatch(self._link + sign):
            self._link += sign
        else:
            self._flush_link()
            self._plain(sign)

    def _grow(self, sign: str) -> None:
        candidate = self._candidate + sign
        if len(candidate) <= LONGEST_MARKER:
            if sign in "]】":
                numbers = self._numbers_in(candidate)
                if numbers:
                    self._candidate = ""
                    self._accept(numbers, opened=candidate[0] == "(")
                    return
            elif _MAY_BECOME.fullmatch(candidate):
                self._candidate = candidate
                return
        self._candidate = ""
        self._flush_link()
        self._plain(candidate[0])
        for rest in candidate[1:]:
            self._take(rest)

    def _numbers_in(self, candidate: str) -> tuple[int, ...]:
        """Source numbers of a whole candidate; none where it is ordinary text."""
        inner = candidate.lstrip("(").strip()[1:-1]
        if not _INNER.fullmatch(inner):
            return ()
        numbers: dict[int, None] = {}
        for match in _TAGS_IN.finditer(re.split(r"†|[,:]?\s?(?:p|page|line|L)", inner, maxsplit=1)[0]):
            first = int(match[1])
            last = int(match[2]) if match[2] else first
            numbers.update(dict.fromkeys(range(first, max(first, min(last, first + _MOST_TAGS)) + 1)))
        if self._code.inside:
            attached = not self._held and not self._after_marker and (self._last.isalnum() or self._last in "_)]'\"")
            if attached or not all(number in self._known for number in numbers):
                return ()
        return tuple(numbers)[:_MOST_TAGS]

    def _accept(self, numbers: tuple[int, ...], *, opened: bool) -> None:
        if self._after_marker:
            self._before = max(self._before, self._link.strip(",;&and"), key=_breadth)
            self._link = ""
        else:
            self._before = self._held
        self._held = ""
        self._after_marker = True
        self._in_parentheses = self._in_parentheses or opened
        self._out.append(Marker(numbers))

    def _flush_link(self) -> None:
        """What followed a marker joins it to no other: it is text."""
        link, self._link = self._link, ""
        if self._in_parentheses:
            self._in_parentheses = False
            self._plain("(")
        for sign in link:
            self._plain(sign)

    def _plain(self, sign: str) -> None:
        if sign.isspace():
            self._held += sign
            return
        gap = self._gap(sign) if self._last else ""
        self._held = self._before = ""
        self._after_marker = False
        self._code.see(gap + sign)
        self._last = sign
        self._out.append(gap + sign)

    def _gap(self, sign: str) -> str:
        """White space before the next sign: as written, or what is left where a marker stood."""
        if not self._after_marker:
            return self._held
        gap = max(self._before, self._held, key=_breadth)
        if "\n" not in gap and sign in _CLOSING:
            return ""
        if not gap and (self._last + sign).isascii() and self._last.isalnum() and sign.isalnum():
            return " "
        return gap


def _breadth(space: str) -> tuple[int, int]:
    return space.count("\n"), len(space)


class _CodeState:
    """Whether the text stands within backticks: a fence, or code in a line, which ends with its paragraph at latest."""

    def __init__(self) -> None:
        self._run = 0
        self._run_starts_line = False
        self._opened_by = 0
        self._fenced = False
        self._line_is_blank = True
        self._breaks = 0

    @property
    def inside(self) -> bool:
        """Whether the next sign would be code; call it between runs of backticks."""
        self._settle()
        return self._opened_by > 0

    def see(self, text: str) -> None:
        """Take the text that was given out."""
        if not self._opened_by and "`" not in text and "\n" not in text:
            self._settle()
            if not self._opened_by:
                self._breaks = 0
                self._line_is_blank = self._line_is_blank and text.isspace()
                return
        for sign in text:
            if sign == "`":
                if not self._run:
                    self._run_starts_line = self._line_is_blank
                self._run += 1
                self._breaks = 0
                continue
            self._settle()
            if sign == "\n":
                self._line_is_blank = True
                self._breaks += 1
                if self._breaks > 1 and not self._fenced:
                    self._opened_by = 0
            elif not sign.isspace():
                self._line_is_blank = False
                self._breaks = 0

    def _settle(self) -> None:
        """A run of backticks is over: it opens or closes."""
        run, self._run = self._run, 0
        if not run:
            return
        starts_line = self._run_starts_line
        self._line_is_blank = False
        if not self._opened_by:
            self._opened_by, self._fenced = run, run >= 3 and starts_line
        elif (self._fenced and run >= self._opened_by and starts_line) or (not self._fenced and run == self._opened_by):
            self._opened_by, self._fenced = 0, False
