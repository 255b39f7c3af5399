"""The gateway's own vectors of passages that another model's vectors found.

The evidence features compare question and candidates in the space that the routing model was made for; vectors of
another model say nothing there. So the candidates' texts are embedded again, each once: vectors are remembered by the
text's hash, in half precision, and the oldest go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from standard.embedding.protocol import normalised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from standard.domain.passage import RetrievedPassage

EmbedTexts: TypeAlias = Callable[["Sequence[str]"], Awaitable[NDArray[np.float32]]]
"""Embeds texts with the gateway's model; L2-normalised (n, d)."""

LONGEST_EMBEDDED = 1_000
"""Code points of a passage that are embedded, some 250 tokens: about one window."""


class EvidenceVectors:
    """Vectors by content, at most `most` of them (8 MB of 384 dimensions)."""

    def __init__(self, embed: EmbedTexts, most: int = 10_000) -> None:
        self._embed = embed
        self._most = most
        self._known: OrderedDict[str, NDArray[np.float16]] = OrderedDict()

    async def of(self, found: Sequence[RetrievedPassage]) -> NDArray[np.float32] | None:
        """Return the vectors of passages, unit rows (n, d) in their order; None where a passage has no text.

        Raises EmbedderUnavailable, Overloaded.
        """
        texts = {item.passage.content_hash: item.passage.text.raw[:LONGEST_EMBEDDED] for item in found}
        if not found or not all(text.strip() for text in texts.values()):
            return None
        known = {key: vector for key in texts if (vector := self._known.get(key)) is not None}
        missing = [key for key in texts if key not in known]
        if missing:
            made = await self._embed([texts[key] for key in missing])
            known |= {key: vector.astype(np.float16) for key, vector in zip(missing, made, strict=True)}
        for key, vector in known.items():
            self._known[key] = vector
            self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return normalised(np.stack([known[item.passage.content_hash] for item in found]).astype(np.float32))

    def __len__(self) -> int:
        return len(self._known)
