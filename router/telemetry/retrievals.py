"""Retrievals as spans: what searches and reads a collection, wrapped where traces are recorded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from standard import semconv
from standard.spans import span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from agentic.library import Library
    from standard.domain.passage import Passage, RetrievedPassage, Retriever, Scope, SearchResult, Section
    from standard.spans import Span, Value


def _attributes(scope: Scope, mode: str, k: int | None = None) -> dict[str, Value]:
    attributes: dict[str, Value] = {
        semconv.OPERATION: semconv.RETRIEVAL,
        semconv.DATA_SOURCE: scope.collection,
        "pointsman.retrieval.mode": mode,
    }
    if k is not None:
        attributes[semconv.REQUEST_TOP_K] = k
    return attributes


def _name(scope: Scope) -> str:
    return f"{semconv.RETRIEVAL} {scope.collection}"


def _tell(opened: Span, text: str, found: Sequence[RetrievedPassage]) -> None:
    if not opened.recording:
        return
    opened.set("pointsman.retrieval.passages", len(found))
    if opened.content:
        opened.set(semconv.QUERY_TEXT, text)
        documents = [
            {"id": each.passage.passage_id, "score": round(each.score, 4), "content": each.passage.text.raw}
            for each in found
        ]
        opened.set(semconv.DOCUMENTS, json.dumps(documents, ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class TracedRetriever:
    """A Retriever whose searches are spans."""

    inner: Retriever

    async def search(
        self,
        scope: Scope,
        text: str,
        vector: NDArray[np.float32],
        *,
        k: int,
        exclude: frozenset[str] = frozenset(),
    ) -> SearchResult:
        """Search; see Retriever. The span tells how long each stage took."""
        with span(_name(scope), _attributes(scope, "hybrid", k)) as opened:
            result = await self.inner.search(scope, text, vector, k=k, exclude=exclude)
            _tell(opened, text, result.passages)
            if opened.recording:
                for stage in ("dense", "lexical", "fuse", "rerank"):
                    opened.set(f"pointsman.retrieval.{stage}_seconds", getattr(result.seconds, stage))
                if result.withheld:
                    opened.set("pointsman.retrieval.withheld", len(result.withheld))
            return result

    async def search_many(
        self, scope: Scope, texts: Sequence[str], vectors: NDArray[np.float32], *, k: int
    ) -> list[SearchResult]:
        """Search for several texts; see Retriever."""
        with span(_name(scope), _attributes(scope, "hybrid", k)) as opened:
            opened.set("pointsman.retrieval.queries", len(texts))
            return await self.inner.search_many(scope, texts, vectors, k=k)


@dataclass(frozen=True, slots=True)
class TracedLibrary:
    """A Library whose retrievals are spans."""

    inner: Library

    async def search(
        self, scope: Scope, text: str, vector: NDArray[np.float32], *, k: int
    ) -> Sequence[RetrievedPassage]:
        """See Library."""
        with span(_name(scope), _attributes(scope, "hybrid", k)) as opened:
            found = await self.inner.search(scope, text, vector, k=k)
            _tell(opened, text, found)
            return found

    async def keyword_search(self, scope: Scope, keywords: str, *, k: int) -> Sequence[RetrievedPassage]:
        """See Library."""
        with span(_name(scope), _attributes(scope, "keyword", k)) as opened:
            found = await self.inner.keyword_search(scope, keywords, k=k)
            _tell(opened, keywords, found)
            return found

    async def semantic_search(
        self, scope: Scope, text: str, vector: NDArray[np.float32], *, k: int
    ) -> Sequence[RetrievedPassage]:
        """See Library."""
        with span(_name(scope), _attributes(scope, "semantic", k)) as opened:
            found = await self.inner.semantic_search(scope, text, vector, k=k)
            _tell(opened, text, found)
            return found

    async def find_linked(
        self, scope: Scope, passages: Sequence[Passage], *, question: str, vector: NDArray[np.float32], k: int
    ) -> Sequence[RetrievedPassage]:
        """See Library."""
        with span(_name(scope), _attributes(scope, "linked", k)) as opened:
            found = await self.inner.find_linked(scope, passages, question=question, vector=vector, k=k)
            _tell(opened, question, found)
            return found

    async def read_section(self, scope: Scope, passage: Passage, *, neighbours: bool) -> Section:
        """See Library."""
        with span(_name(scope), _attributes(scope, "section")):
            return await self.inner.read_section(scope, passage, neighbours=neighbours)

    async def mentioned(self, scope: Scope, names: Sequence[str]) -> frozenset[str]:
        """See Library."""
        with span(_name(scope), _attributes(scope, "mentioned")) as opened:
            _names(opened, names)
            return await self.inner.mentioned(scope, names)


def _names(opened: Span, names: Iterable[str]) -> None:
    if opened.content:
        opened.set(semconv.QUERY_TEXT, ", ".join(names))
