"""The neutral form of a question: what the text model reads, whatever the writer's keyboard did.

Prevents a router that decides by style. In public question sets casing and the final question mark name the data set,
and thus the label; a model that sees them is excellent in its own data and guesses elsewhere. Width and compatibility
forms, white space, enclosing quotes and what follows the last word are therefore made alike, and `folded` drops case as
well. The embedding used for routing should be made from `neutral(text)`, so that a final "?" cannot flip a route.
"""

from __future__ import annotations

import re
import unicodedata

MAX_LENGTH = 8_000
"""Code points that are read. Of a longer text the first quarter and the last three quarters of this are kept: people
write the question after its background more often than before."""

_SPACE = re.compile(r"[\s\u0000-\u001f\u007f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]+")
_CLOSING = " .?!…:;,-–—~*\"'“”„«»‘’`。？！、،؟।"
_OPENING = " \"'“”„«»‘’`*¿¡–—"


def clipped(text: str) -> str:
    """Return at most MAX_LENGTH code points of the text, the middle cut out of a longer one."""
    if len(text) <= MAX_LENGTH:
        return text
    head = MAX_LENGTH // 4
    return f"{text[:head]} {text[len(text) - (MAX_LENGTH - head - 1) :]}"


def neutral(text: str) -> str:
    """Return the text with one form for each sign (NFKC), single spaces, and nothing around its first and last word.

    Text that holds signs alone keeps them, so that it stays distinct from nothing. Idempotent.
    """
    clean = _SPACE.sub(" ", unicodedata.normalize("NFKC", clipped(text)))
    return clean.rstrip(_CLOSING).lstrip(_OPENING) or clean.strip()


def folded(text: str) -> str:
    """Return the neutral form without case."""
    return neutral(text).casefold()
