"""An embedder without a model: vectors from hashed words, deterministic on every machine.

Texts that share words are near each other, so a search over it finds what shares words. It speaks the protocol of the
real embedders and keeps their limits: a passage beyond the window is refused, never cut.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from standard.embedding.protocol import PassageInput, PassageVectors, TextTooLong

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_TOKEN = re.compile(r"\w+|[^\w\s]")
_SPECIAL_TOKENS = 2
_HASHES_A_WORD = 4


@dataclass(slots=True)
class HashingEmbedder:
    """`seconds_a_passage` makes it slow; `passages` counts what it embedded. Words are tokens, two are special."""

    id: str = "hashing"
    checksum: str = "hashing-1"
    dimensions: int = 384
    max_tokens: int = 256
    seconds_a_passage: float = 0.0
    passages: int = 0
    _words: dict[str, NDArray[np.float32]] = field(default_factory=dict, repr=False)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return words and punctuation marks of each text, and two special tokens."""
        return [len(_TOKEN.findall(text)) + _SPECIAL_TOKENS for text in texts]

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (n, d) float32, L2-normalised."""
        return np.stack([self._vector(text) for text in texts]) if texts else self._empty()

    async def embed_passages(self, passages: Sequence[PassageInput]) -> PassageVectors:
        """Return the vectors of passages and of their sentences. Raises TextTooLong."""
        for index, tokens in enumerate(self.count_tokens([passage.text for passage in passages])):
            if tokens > self.max_tokens:
                raise TextTooLong(index, tokens, self.max_tokens)
        await asyncio.sleep(self.seconds_a_passage * len(passages))
        self.passages += len(passages)
        vectors = await self.embed_queries([passage.text for passage in passages])
        sentences = [
            await self.embed_queries([passage.text[start:end] for start, end in passage.sentences])
            for passage in passages
        ]
        return PassageVectors(vectors, tuple(sentences))

    def _empty(self) -> NDArray[np.float32]:
        return np.zeros((0, self.dimensions), np.float32)

    def _vector(self, text: str) -> NDArray[np.float32]:
        total = np.zeros(self.dimensions, np.float32)
        for word in re.findall(r"\w+", text.lower()):
            total += self._of_word(word)
        norm = float(np.linalg.norm(total))
        if norm == 0.0:
            total[0], norm = 1.0, 1.0
        return (total / norm).astype(np.float32)

    def _of_word(self, word: str) -> NDArray[np.float32]:
        known = self._words.get(word)
        if known is None:
            known = np.zeros(self.dimensions, np.float32)
            digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=4 * _HASHES_A_WORD).digest()
            for index in range(_HASHES_A_WORD):
                value = int.from_bytes(digest[4 * index : 4 * index + 4], "big")
                known[value % self.dimensions] += 1.0 if value >> 31 else -1.0
            self._words[word] = known
        return known
