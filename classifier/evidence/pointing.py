"""Whether the passages of a first look leave something of the question open, or point beyond themselves."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from classifier.evidence.coverage import holds
from classifier.evidence.documents import Documents, places_by
from classifier.evidence.look import SHOWN, Look
from classifier.evidence.pieces import content_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RIDGE = 1e-3
"""Keeps passages that say the same from spanning a space."""


def pointing(look: Look, docs: Documents) -> dict[str, float]:
    """Return the features of what is left over and where it points."""
    dense, number = docs.dense, docs.number
    others = [place for place, document in enumerate(number) if document != 0]
    nearest = [place for place in places_by(dense) if number[place] == 0]
    alone = _length_left(dense[nearest[0]] ** 2 / (float(docs.gram[nearest[0], nearest[0]]) + _RIDGE))
    elsewhere = _left_over_pairs(docs, nearest[0], others[:8])
    within = _left_over_pairs(docs, nearest[0], nearest[1:6])
    rest = unit((look.vector - float(look.vector @ look.vectors[0]) * look.vectors[0])[None])[0]
    second: list[float] = (look.vectors @ rest).tolist()
    most = max(second)
    lowered = look.question.lower()
    named = _named_titles(lowered, docs, others)
    asked = _title_words(docs.titles[0])
    return {
        "parts": math.log1p(len(look.pieces)),
        "left_over": within[0] if within else alone,
        "left_over_shown": _left_over(docs, SHOWN),
        "explained_elsewhere": alone - min(elsewhere, default=alone),
        "explained_within": alone - min(within, default=alone),
        "second_same": float(number[second.index(most)] == 0),
        "second_near": most,
        "second_beyond": most - max(second[:SHOWN]),
        "names_title": max(named, default=0.0),
        "titles_named": float(min(sum(share == 1.0 for share in named), 5)),
        "title_asked": sum(word in lowered for word in asked) / len(asked) if asked else 0.0,
    }


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the rows at length 1; a row of zeros stays one."""
    lengths = np.sqrt(np.einsum("rd,rd->r", rows, rows))
    lengthened: NDArray[np.float32] = rows / np.maximum(lengths, np.float32(1e-6))[:, None]
    return lengthened


@lru_cache(maxsize=4096)
def _title_words(title: str) -> tuple[str, ...]:
    """The content words of a title; the titles of a collection come again with every question."""
    return tuple(content_words(title))


def _named_titles(question: str, docs: Documents, others: list[int]) -> list[float]:
    """Return for each other document the share of its title, beyond the question's words, that the first one names."""
    first = [place for place, document in enumerate(docs.number) if document == 0]
    text = "\n".join(docs.texts[place] for place in first[:3])
    shares, seen = [], set()
    for place in others:
        if docs.number[place] in seen:
            continue
        seen.add(docs.number[place])
        words = [word for word in _title_words(docs.titles[place]) if len(word) > 2 and word not in question]
        if words:
            shares.append(sum(holds(text, word) for word in words) / len(words))
    return shares


def _left_over(docs: Documents, count: int) -> float:
    """Return the length of what the span of the first passages does not explain of the question's unit vector."""
    gram = docs.gram[:count, :count].astype(np.float64)
    gram.flat[:: len(gram) + 1] += _RIDGE
    seen = docs.dense[:count]
    return _length_left(float(np.array(seen) @ np.linalg.solve(gram, seen)))


def _left_over_pairs(docs: Documents, first: int, others: list[int]) -> list[float]:
    """Return the same for one passage with each other, by the inverse of a matrix of two rows."""
    row: list[float] = docs.gram[first].tolist()
    lengths: list[float] = docs.gram.diagonal().tolist()
    own, seen = row[first] + _RIDGE, docs.dense[first]
    left = []
    for place in others:
        theirs, shared, seen_theirs = lengths[place] + _RIDGE, row[place], docs.dense[place]
        explained = (theirs * seen**2 - 2.0 * shared * seen * seen_theirs + own * seen_theirs**2) / (
            own * theirs - shared**2
        )
        left.append(_length_left(explained))
    return left


def _length_left(explained: float) -> float:
    """Return the length of the rest of a unit vector of whose square so much is explained."""
    return math.sqrt(max(0.0, 1.0 - explained))
