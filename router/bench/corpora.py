"""Synthetic collections of a given size: words drawn by Zipf's law, vectors around a few hundred topics.

Embedding 100,000 real passages would take half an hour and tell nothing more about the speed of a search. The vectors
are drawn, everything else (cutting, postings, indexes) goes through the real ingest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from router.bench.embedders import LikeTheReal
from standard.corpus.collections import EmbedderIdentity, ensure_collection, get_collection
from standard.corpus.document import SourceDocument
from standard.corpus.ingest import ingest
from standard.domain.errors import NotFound
from standard.embedding.protocol import PassageVectors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from numpy.typing import NDArray

    from standard.corpus.ingest import IngestProgress
    from standard.database.pool import Pool
    from standard.embedding.protocol import Embedder, PassageInput

_VOCABULARY = 30_000
_TOPICS = 400
_WORDS_A_SENTENCE = 12
_SENTENCES = 10
_QUESTION_WORDS = [
    "spare",
    "bilge",
    "pump",
    "kept",
    "sailing",
    "night",
    "ticket",
    "bicycle",
    "lower",
    "car",
    "deck",
    "inspected",
    "cost",
    "signs",
]


@dataclass(frozen=True, slots=True)
class _DrawnVectors(LikeTheReal):
    """The embedder's identity with vectors drawn at random around topics."""

    topics: NDArray[np.float32]
    random: np.random.Generator

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """A cheap upper estimate: drawn words have at most four pieces."""
        return [2 + 2 * text.count(" ") for text in texts]

    async def embed_passages(self, passages: Sequence[PassageInput]) -> PassageVectors:
        """Drawn vectors."""
        vectors = self._draw(len(passages))
        return PassageVectors(vectors, tuple(self._draw(len(passage.sentences)) for passage in passages))

    def _draw(self, count: int) -> NDArray[np.float32]:
        centres = self.topics[self.random.integers(0, len(self.topics), count)]
        vectors = centres + self.random.normal(0.0, 0.04, centres.shape).astype(np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: NDArray[np.float32] = (vectors / np.maximum(lengths, 1e-6)).astype(np.float32)
        return unit


async def fill(pool: Pool, embedder: Embedder, passages: int, *, report: Callable[[int], None] = lambda _: None) -> str:
    """Make the collection `bench-<passages>` unless it is there; returns its name. `report` takes passages written."""
    name = f"bench-{passages}"
    try:
        if (await get_collection(pool, "default", name)).passage_count >= passages * 0.9:
            return name
    except NotFound:
        pass
    identity = EmbedderIdentity(embedder.id, embedder.checksum, embedder.dimensions)
    await ensure_collection(pool, "default", name, embedder=identity)
    random = np.random.default_rng(7)
    topics = random.normal(0.0, embedder.dimensions**-0.5, (_TOPICS, embedder.dimensions)).astype(np.float32)
    drawn = _DrawnVectors(embedder, topics, random)

    def progress(state: IngestProgress) -> None:
        report(state.passages)

    await ingest(pool, "default", name, _documents(passages, random), drawn, progress=progress)
    return name


async def _documents(count: int, random: np.random.Generator) -> AsyncIterator[SourceDocument]:
    words = np.array([f"{_SYLLABLES[n % 50]}{_SYLLABLES[n // 50 % 50]}{n // 2500}" for n in range(_VOCABULARY)])
    for place, word in enumerate(_QUESTION_WORDS):
        words[40 + 37 * place] = word
    for number in range(count):
        ranks = np.minimum(random.zipf(1.3, _SENTENCES * _WORDS_A_SENTENCE), _VOCABULARY) - 1
        drawn = words[ranks].reshape(_SENTENCES, _WORDS_A_SENTENCE)
        text = " ".join(" ".join(sentence).capitalize() + "." for sentence in drawn)
        yield SourceDocument(f"d{number}", " ".join(drawn[0][:4]), text, source="bench")


_SYLLABLES = [first + second for first in "bdfgklmnpr" for second in "aeiou"]
