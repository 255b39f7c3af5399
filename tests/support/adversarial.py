"""Texts that make a backtracking pattern slow, and the measure of whether it is: how time grows with their length."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UNITS = (
    "-", "=", "#", "*", "_", "-=", "a", "A", "0", "1", "F", ".", ",", ":", ";", "!", "?", "'", '"', "/", "\\",
    "|", "<", ">", "[", "]", "(", "{", "%", "&", "$", "+", "~", "@", "`", " ", "\n", "\t", "\r", "\u00a0",
    "\u200b", "́", "é", "日", "\n ", "\n\n ", "- ", ". ", ".- ", "a ", "A ", "0 ", "12 ", "F0 ", "A.", "A. ",
    "A.B.", "ab-", "a.", "a@", "a+", "a_a", "a'", "1.", "1,", "&amp;", "\\x4", "<~", "<|", "<a ", "</a",
    "<!--", "![](", "](", "data:", "&#1", "www.", "http://", "=A", "=0A", "\n#", "0x", "🙂", "A and ", "A of ",
    "the ", "the x ", "a and b ", "compare X and ", "which of ", "a or b ", "both ", "both a and ",
    "between a and ", "a versus ", "a, ", "what is it? ",
)  # fmt: skip
"""What is repeated: runs of each class of signs, and the beginnings of what the patterns look for."""
ENDS = ("", "a", "\x01")
"""What stands behind a run: a pattern that matches the run alone only shows its cost where it fails at the end."""


def adversarial(length: int) -> Iterator[tuple[str, str]]:
    """(name, text) of each unit and end, texts of at most `length` code points."""
    for unit in UNITS:
        for end in ENDS:
            yield f"{unit!r}…{end!r}", (unit * (length // len(unit) + 1))[: length - len(end)] + end


def grows_beyond_linear(read: Callable[[str], object], short: str, long: str, floor: float) -> float:
    """CPU seconds of the longer text where they exceed 10 times the shorter one's + `floor`, else 0; texts 1 : 4.

    The best of three, of either: what else the machine does can only add.
    """
    took = _seconds(read, long)
    if took <= floor:
        return 0.0
    took = min(took, _seconds(read, long), _seconds(read, long))
    base = min(_seconds(read, short) for _ in range(3))
    return took if took > 10 * base + floor else 0.0


def _seconds(read: Callable[[str], object], text: str) -> float:
    begun = time.process_time()
    read(text)
    return time.process_time() - begun
