"""From token vectors to vectors of texts and sentences, and how token rows are put together for one pass.

A text's vector is the mean of its token vectors, special tokens included, as sentence-transformers computes it for
MiniLM. A sentence's vector is the mean of its own tokens in the passage's pass ("late chunking": Günther et al., 2024,
arXiv:2409.04701), so it costs nothing more and knows what its pronouns refer to.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from standard.embedding.protocol import normalised

if TYPE_CHECKING:
    from collections.abc import Sequence


def windows(ids: Sequence[int], limit: int) -> list[list[int]]:
    """Cut a row of token ids, special first and last, into rows of at most `limit`, of nearly equal length.

    A row that fits stays whole; each other row gets the special tokens.
    """
    if len(ids) <= limit:
        return [list(ids)]
    first, *inner, last = ids
    count = -(-len(inner) // (limit - 2))
    edges = [round(place * len(inner) / count) for place in range(count + 1)]
    return [[first, *inner[begin:end], last] for begin, end in pairwise(edges)]


def groups(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group row numbers for passes of at most `budget` padded tokens each (one row may exceed it), shortest first.

    Rows of like length go together, so little is padding.
    """
    made: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if made and (len(made[-1]) + 1) * lengths[row] <= budget:
            made[-1].append(row)
        else:
            made.append([row])
    return made


def sentence_means(
    tokens: NDArray[np.float32],
    offsets: Sequence[tuple[int, int]],
    sentences: Sequence[tuple[int, int]],
    otherwise: NDArray[np.float32],
) -> NDArray[np.float32]:
    """L2-normalised means of a passage's token vectors over its sentences, (m, d).

    `tokens` is (t, d) and `offsets` the t half-open code point spans, both without special tokens, in order. A token
    belongs to the sentence it begins in; a sentence in which none begins (it is all control characters, say) gets
    `otherwise` (d,), the vector of the passage.
    """
    begins = [begin for begin, _ in offsets]
    means = np.empty((len(sentences), tokens.shape[1]), np.float32)
    for place, (start, end) in enumerate(sentences):
        part = tokens[bisect_left(begins, start) : bisect_left(begins, end)]
        means[place] = part.mean(axis=0) if len(part) else otherwise
    return normalised(means)
