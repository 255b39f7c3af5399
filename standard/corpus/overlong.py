"""Split a sentence that is longer than a chunk, at the best places there are: clauses, then words, then characters.

Scripts without spaces and blobs without any are cut between characters, never before a combining mark or a joiner, so
that no user-perceived character is torn (UAX 29, grapheme clusters; the marks alone are looked at).
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ATOM = re.compile(r"\S{1,24}\s*|\s+")
_CLAUSE = re.compile(r"[;:,،、，；：)\]–—|](?:\s|$)|[、，；：]")
_JOINERS = "\u200c\u200d\ufe0e\ufe0f\u20e3"
_MARKS_FOLLOWED = 32  # a longer tower of marks is no writing, and may be cut


def split_overlong(
    text: str, start: int, end: int, *, cost: Callable[[Sequence[str]], list[int]], budget: int, characters: int
) -> list[tuple[int, int, int]]:
    """Cut text[start:end] into (start, end, tokens), without blanks at either side, in order, none empty.

    Each part costs at most `budget` tokens, as far as the tokens of its words add up, and has at most `characters` code
    points (>= 64); a cut falls in the second half of a part, where it reads best. `cost` counts tokens, special ones
    excluded. Linear in the length.
    """
    edges = _edges(text, start, end)
    tokens = cost([text[a:b] for a, b in pairwise(edges)])
    parts = []
    first = 0
    while first < len(tokens):
        last, total = first, tokens[first]
        best, best_rank = first, -1
        while True:
            rank = _rank(text, edges[last], edges[last + 1])
            size = edges[last + 1] - edges[first]
            if (2 * total >= budget or 2 * size >= characters) and rank >= best_rank:
                best, best_rank = last, rank
            if last + 1 == len(tokens):
                best = last
                break
            if total + tokens[last + 1] > budget or edges[last + 2] - edges[first] > characters:
                best = best if best_rank >= 0 else last
                break
            last += 1
            total += tokens[last]
        part = text[edges[first] : edges[best + 1]]
        stripped = part.strip()
        if stripped:
            begin = edges[first] + len(part) - len(part.lstrip())
            parts.append((begin, begin + len(stripped), sum(tokens[first : best + 1])))
        first = best + 1
    return parts


def middle(text: str, start: int, end: int) -> int:
    """Return where to cut text[start:end] (two code points at least) in two near its middle, at a blank if one is near.

    Where that would tear a user-perceived character the cut moves on; it lies strictly between start and end.
    """
    half = (start + end) // 2
    blank = text.rfind(" ", start + (end - start) // 4, half)
    if blank > start:
        return blank
    moved = _past_marks(text, half, end)
    return moved if moved < end else half


def _edges(text: str, start: int, end: int) -> list[int]:
    """Return the places where text[start:end] may be cut, from start to end, both included."""
    edges = [start]
    for match in _ATOM.finditer(text, start, end):
        edge = _past_marks(text, match.end(), end)
        if edge > edges[-1]:
            edges.append(edge)
    return edges


def _past_marks(text: str, index: int, end: int) -> int:
    """Return the first place from `index` on that is neither before a combining mark or joiner nor after a joiner."""
    stop = min(end, index + _MARKS_FOLLOWED)
    while index < stop and (
        text[index] in _JOINERS or text[index - 1] == "\u200d" or unicodedata.category(text[index])[0] == "M"
    ):
        index += 1
    return index


def _rank(text: str, start: int, end: int) -> int:
    """How good a cut after text[start:end] is: 2 after a clause, 1 after a word, 0 inside one."""
    if _CLAUSE.search(text, max(start, end - 3), end):
        return 2
    return 1 if text[end - 1].isspace() else 0
