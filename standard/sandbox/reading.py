"""Prevents: a scanner that reads something else than the model does.

From raw text come two readings. `delivered` is what a prompt gets: the text as a person sees it. `canonical` is what
the scanner reads: everything invisible, disguised or encoded is spelled out in its place. Both are idempotent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from standard.sandbox.canonicalise import canonicalise
from standard.sandbox.encodings import NestedTooDeep, spell_out
from standard.sandbox.folding import fold_ciphers, fold_lookalikes, fold_marks, fold_spacing, fold_styles
from standard.sandbox.hidden import Hidden, invisible_messages

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 6
"""Disguises within disguises that are taken off; what needs more is refused."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Two readings of a text, and what was met on the way to the second.

    `revealed` are texts that were encoded or spelled with invisible signs, with the way; `disguises` the names of all
    disguises taken off. `given_up`: nested too deep; `canonical` is empty then.
    """

    delivered: str
    canonical: str
    revealed: tuple[tuple[str, str], ...] = ()
    disguises: frozenset[str] = frozenset()
    given_up: bool = False


def read(raw: str, vocabulary: frozenset[str]) -> Reading:
    """Read `raw` both ways. `vocabulary` holds words that letter-by-letter writing is cut into."""
    delivered = canonicalise(raw)
    revealed: list[tuple[str, str]] = []
    disguises: set[str] = set()
    text = raw
    for _ in range(ROUNDS):
        try:
            after = _take_off(text, vocabulary, revealed, disguises)
        except NestedTooDeep:
            break
        if after == text:
            return Reading(delivered, after, tuple(revealed), frozenset(disguises))
        text = after
    return Reading(delivered, "", tuple(revealed), frozenset({*disguises, "nesting"}), given_up=True)


def _take_off(text: str, vocabulary: frozenset[str], revealed: list[tuple[str, str]], disguises: set[str]) -> str:
    """One layer of every disguise."""
    messages = invisible_messages(text)
    if messages:
        text = _spelled(text, messages)
        revealed += [(message.kind, message.text) for message in messages]
        disguises |= {message.kind for message in messages}
    text = canonicalise(text)
    folds: tuple[tuple[str, Callable[[str], str]], ...] = (
        ("styled-letters", fold_styles),
        ("lookalikes", fold_lookalikes),
        ("marks", fold_marks),
        ("spacing", lambda plain: fold_spacing(plain, vocabulary)),
    )
    for name, fold in folds:
        folded = fold(text)
        if folded != text:
            disguises.add(name)
            text = folded
    text, decoded = spell_out(text)
    revealed += [(item.encoding, item.text) for item in decoded]
    disguises |= {item.encoding for item in decoded}
    text, ways = fold_ciphers(text)
    disguises |= ways
    return canonicalise(text)


def _spelled(text: str, messages: list[Hidden]) -> str:
    pieces: list[str] = []
    at = 0
    for message in messages:
        if message.start < at:
            continue
        pieces += [text[at : message.start], message.text if message.kind == "bidi" else f" {message.text} "]
        at = message.end
    return "".join(pieces) + text[at:]
