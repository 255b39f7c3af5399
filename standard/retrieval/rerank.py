"""An optional cross-encoder over the head of a search: reads question and passage together, a few ms a passage.

Off unless configured. Candidates and vectors of a search stay as they were, since evidence features read the first
retrieval's own order; only `passages` are ordered anew. A scorer that fails or takes too long costs nothing but its
time: the fused order stands, and the log says so.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from standard.domain.errors import EmbedderUnavailable, FailedPrecondition
from standard.embedding.workers import Workers
from standard.retrieval.together import all_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from standard.domain.passage import RetrievedPassage, Retriever, Scope, SearchResult

MAX_K = 100
_BATCH = 8


class Scorer(Protocol):
    """Tells how well passages answer a question."""

    async def __call__(self, question: str, passages: Sequence[str]) -> list[float]:
        """Return one score a passage, higher is better; the unit is the scorer's own."""
        ...


class CrossEncoderScorer:
    """A sentence-transformers cross-encoder. Needs the extra `models`; whoever made it closes it."""

    def __init__(self, model: str, *, threads: int = 2) -> None:
        """Load a model by id or folder; takes seconds, so call it off the event loop.

        Raises FailedPrecondition without the extra, EmbedderUnavailable where the model cannot be loaded.
        """
        try:
            import torch
            from sentence_transformers import CrossEncoder
        except ImportError as error:
            raise FailedPrecondition(
                f"the reranker {model!r} is a sentence-transformers model, and these need the extra `models`: "
                "pip install 'pointsman[models]', or leave retrieval.reranker (POINTSMAN_RETRIEVAL__RERANKER) empty"
            ) from error
        torch.set_num_threads(threads)
        try:
            self._model: Any = CrossEncoder(model, device="cpu")
        except (OSError, ValueError, RuntimeError) as error:
            raise EmbedderUnavailable(
                f"the reranker {model!r} cannot be loaded ({type(error).__name__}): it is no folder with a "
                "cross-encoder, and could not be fetched by that id"
            ) from error
        self.id = Path(model).name if Path(model).is_dir() else model
        self._workers = Workers("rerank", 1)

    async def __call__(self, question: str, passages: Sequence[str]) -> list[float]:
        """Score passages; what is beyond the model's window is not read."""
        return await self._workers.run(partial(self._score, question, list(passages)))

    async def close(self) -> None:
        """Wait for the work at hand and end."""
        await self._workers.close()

    def _score(self, question: str, passages: list[str]) -> list[float]:
        if not passages:
            return []
        pairs = [(question, passage) for passage in passages]
        return [float(score) for score in self._model.predict(pairs, batch_size=_BATCH, show_progress_bar=False)]


class RerankingRetriever:
    """A retriever whose passages a scorer orders; implements Retriever.

    The first `depth` passages (>= k) are scored within `timeout_seconds`.
    """

    def __init__(self, retriever: Retriever, scorer: Scorer, *, depth: int = 20, timeout_seconds: float = 2.0) -> None:
        self._retriever = retriever
        self._scorer = scorer
        self._depth = depth
        self._timeout_seconds = timeout_seconds

    async def search(
        self,
        scope: Scope,
        text: str,
        vector: NDArray[np.float32],
        *,
        k: int,
        exclude: frozenset[str] = frozenset(),
    ) -> SearchResult:
        """Search wider, score, and keep the best k; see Retriever."""
        wide = min(max(k, self._depth), MAX_K) if k >= 1 else k
        result = await self._retriever.search(scope, text, vector, k=wide, exclude=exclude)
        return await self._reranked(text, result, k)

    async def search_many(
        self, scope: Scope, texts: Sequence[str], vectors: NDArray[np.float32], *, k: int
    ) -> list[SearchResult]:
        """Search for several texts; see Retriever."""
        wide = min(max(k, self._depth), MAX_K) if k >= 1 else k
        results = await self._retriever.search_many(scope, texts, vectors, k=wide)
        return await all_of([self._reranked(text, result, k) for text, result in zip(texts, results, strict=True)])

    async def _reranked(self, text: str, result: SearchResult, k: int) -> SearchResult:
        began = time.perf_counter()
        head = result.passages[: max(k, self._depth)]
        ordered: Sequence[RetrievedPassage] = head
        try:
            async with asyncio.timeout(self._timeout_seconds):
                scores = await self._scorer(text, [_readable(item) for item in head])
        except (TimeoutError, RuntimeError, EmbedderUnavailable) as problem:
            structlog.get_logger(__name__).warning("rerank_failed", problem=type(problem).__name__, passages=len(head))
        else:
            scored = [replace(item, rerank_score=score) for item, score in zip(head, scores, strict=True)]
            ordered = sorted(scored, key=lambda item: -(item.rerank_score or 0.0))
        seconds = replace(result.seconds, rerank=time.perf_counter() - began)
        return replace(result, passages=tuple(ordered[:k]), seconds=seconds)


def _readable(item: RetrievedPassage) -> str:
    title = item.passage.title.raw
    return f"{title}\n{item.passage.text.raw}" if title else item.passage.text.raw
