"""Long questions for models whose tokens we only can count: cut into pieces that fit, then averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from standard.embedding.protocol import normalised

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def pieces(text: str, count: Callable[[str], int], limit: int) -> list[tuple[str, int]]:
    """Cut `text` until every piece has at most `limit` tokens; returns pieces that are not blank, with their tokens.

    A cut is made at the space nearest the middle, or in the middle of a text without spaces. A single character stays
    whole, whatever it counts.
    """
    tokens = count(text)
    if tokens <= limit or len(text) < 2:
        return [(text, tokens)] if text.strip() else []
    middle = len(text) // 2
    before, after = text.rfind(" ", 1, middle), text.find(" ", middle)
    spaces = [place for place in (before, after) if place > 0]
    cut = min(spaces, key=lambda place: abs(place - middle), default=middle)
    return pieces(text[:cut], count, limit) + pieces(text[cut:], count, limit)


def weighted_means(
    vectors: NDArray[np.float32], weights: Sequence[int], owners: Sequence[int], count: int
) -> NDArray[np.float32]:
    """L2-normalised means of rows by owner, (count, d): row i weighs weights[i] for text owners[i] (0 to count - 1)."""
    sums = np.zeros((count, vectors.shape[1]), np.float32)
    np.add.at(sums, np.asarray(owners, np.intp), vectors * np.asarray(weights, np.float32)[:, None])
    return normalised(sums)
