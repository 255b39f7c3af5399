# ruff: noqa: ARG002 - the memory library ignores scopes
"""A collection held in memory, for tests of what is pure around retrieval: no index, no SQL, one order."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from standard.domain.passage import Passage, RetrievedPassage, Scope, SearchResult, Section
from standard.domain.text import UntrustedText
from standard.retrieval.section import screened_section

DIMENSIONS = 512


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def embed_text(text: str) -> NDArray[np.float32]:
    """A unit vector (512,) of hashed words: texts that share words are near."""
    vector = np.full(DIMENSIONS, 1e-3, dtype=np.float32)
    for word in words(text):
        digest = hashlib.sha256(word.encode()).digest()
        vector[int.from_bytes(digest[:4], "big") % DIMENSIONS] += 1.0
    return vector / np.float32(np.linalg.norm(vector))


async def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    return np.stack([embed_text(text) for text in texts])


def passage(document_id: str, text: str, *, title: str = "", position: int = 0, verdict: str = "pass") -> Passage:
    return Passage(
        passage_id=f"{document_id}#{position}",
        document_id=document_id,
        title=UntrustedText(title or document_id),
        uri=f"memory:{document_id}",
        text=UntrustedText(text),
        position=position,
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
        verdict=verdict,
    )


@dataclass
class MemoryLibrary:
    """Passages by id. `delay` seconds pass in every retrieval; `calls` records each as (method, text)."""

    passages: list[Passage]
    delay: float = 0.0
    calls: list[tuple[str, str]] = field(default_factory=list)
    failures: Mapping[str, Exception] = field(default_factory=dict)
    running: int = 0
    most_at_once: int = 0

    async def _enter(self, method: str, text: str) -> None:
        self.calls.append((method, text))
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await asyncio.sleep(self.delay)
        finally:
            self.running -= 1
        if method in self.failures:
            raise self.failures[method]

    def _ranked(self, scored: Sequence[tuple[float, Passage]], k: int, via: str = "search") -> list[RetrievedPassage]:
        kept = sorted(((score, item) for score, item in scored if score > 0), key=lambda pair: -pair[0])[:k]
        return [RetrievedPassage(item, min(1.0, score), dense_score=score, via=via) for score, item in kept]

    async def search(
        self, scope: Scope, text: str, vector: NDArray[np.float32], *, k: int
    ) -> Sequence[RetrievedPassage]:
        await self._enter("search", text)
        return self._ranked([(float(vector @ embed_text(f"{p.title.raw} {p.text.raw}")), p) for p in self.passages], k)

    async def keyword_search(self, scope: Scope, keywords: str, *, k: int) -> Sequence[RetrievedPassage]:
        await self._enter("keyword_search", keywords)
        wanted = words(keywords)
        return self._ranked(
            [(sum(words(p.text.raw).count(word) * len(word) for word in wanted) / 100, p) for p in self.passages], k
        )

    async def semantic_search(
        self, scope: Scope, text: str, vector: NDArray[np.float32], *, k: int
    ) -> Sequence[RetrievedPassage]:
        await self._enter("semantic_search", text)
        return self._ranked([(float(vector @ embed_text(p.text.raw)), p) for p in self.passages], k)

    async def find_linked(
        self, scope: Scope, passages: Sequence[Passage], *, question: str, vector: NDArray[np.float32], k: int
    ) -> Sequence[RetrievedPassage]:
        await self._enter("find_linked", ", ".join(item.title.raw for item in passages))
        text = " ".join(item.text.raw for item in passages).casefold()
        sources = {item.passage_id for item in passages}
        return self._ranked(
            [(0.5, p) for p in self.passages if p.passage_id not in sources and p.title.raw.casefold() in text],
            k,
            "link",
        )

    async def read_section(self, scope: Scope, passage: Passage, *, neighbours: bool) -> Section:
        await self._enter("read_section", passage.passage_id)
        parts = [p for p in self.passages if p.document_id == passage.document_id]
        if not neighbours:
            parts = [p for p in parts if abs(p.position - passage.position) <= 1]
        text = "\n".join(p.text.raw for p in sorted(parts, key=lambda p: p.position))
        return await screened_section(passage.passage_id, text, "standard")

    async def mentioned(self, scope: Scope, names: Sequence[str]) -> frozenset[str]:
        await self._enter("mentioned", ", ".join(names))
        vocabularies = [set(words(f"{p.title.raw} {p.text.raw}")) for p in self.passages]
        return frozenset(name for name in names if any(set(words(name)) <= known for known in vocabularies))

    async def first(self, text: str, k: int = 5) -> SearchResult:
        """The retrieval that the gateway makes before it decides."""
        found = await self.search(Scope(), text, embed_text(text), k=k)
        return SearchResult(passages=tuple(found), candidates=tuple(found), corpus_size=len(self.passages))
