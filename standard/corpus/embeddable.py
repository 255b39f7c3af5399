"""What of a sentence is embedded: its words, without the marks that lay it out.

A rule of a hundred dashes costs a hundred tokens of the window and says nothing; so do the addresses of links, emphasis
and the frame of a table row. The stored text keeps them all.
"""

from __future__ import annotations

import re

_LINK = re.compile(r"!?\[([^\]\n]{0,500})\]\([^()\s]{0,2000}(?:\s+\"[^\"\n]{0,200}\")?\)")
_RUN = re.compile(r"([-=_*~.#+|·•])\1{3,}")
_EMPHASIS = re.compile(r"\*{2,3}")
_HEADING = re.compile(r"#{1,6}[ \t]+")
_SEPARATOR = re.compile(r"[ \t]*(?<!\\)\|[ \t]*")


def embeddable(text: str) -> str:
    """Return the words of a unit of a document; "" where it has none. Linear in its length."""
    words = text
    if "](" in words:
        words = _LINK.sub(r"\1", words)
    if words.startswith("#"):
        words = _HEADING.sub("", words, count=1)
    if words.startswith("|"):
        words = _SEPARATOR.sub(" | ", words).strip("| \t")
    words = _EMPHASIS.sub("", _RUN.sub(" ", words)).strip()
    return words if any(character.isalnum() for character in words) else ""
