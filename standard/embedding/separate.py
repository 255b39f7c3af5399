"""Passages and sentences for backends that give one vector a text: every distinct text is encoded once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from standard.embedding.protocol import PassageVectors, TextTooLong, checked_passages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from standard.embedding.protocol import PassageInput


async def embed_separately(
    passages: Sequence[PassageInput],
    *,
    count_tokens: Callable[[Sequence[str]], list[int]],
    max_tokens: int,
    dimensions: int,
    encode: Callable[[list[str]], Awaitable[NDArray[np.float32]]],
) -> PassageVectors:
    """Embed passages and, as texts of their own, their sentences; `encode` gives L2-normalised vectors, (n, d).

    A blank sentence gets its passage's vector. Raises what Embedder.embed_passages raises.
    """
    texts = checked_passages(passages)
    for index, tokens in enumerate(count_tokens(texts)):
        if tokens > max_tokens:
            raise TextTooLong(index, tokens, max_tokens)
    sentences = [
        [text[start:end] if text[start:end].strip() else text for start, end in passage.sentences]
        for text, passage in zip(texts, passages, strict=True)
    ]
    # Shortest first, so that a backend's batches hold texts of like length.
    distinct = sorted({part for text, own in zip(texts, sentences, strict=True) for part in (text, *own)}, key=len)
    rows = {text: row for row, text in enumerate(distinct)}
    vectors = await encode(distinct) if distinct else np.empty((0, dimensions), np.float32)
    return PassageVectors(
        vectors[[rows[text] for text in texts]],
        tuple(vectors[[rows[part] for part in own]] for own in sentences),
    )
