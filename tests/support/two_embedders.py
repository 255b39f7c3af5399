"""Two embedders for tests: one that hashes words, and one behind a real HTTP server with vectors of another length."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from standard.corpus.collections import EmbedderSpec
from standard.corpus.embedders import Embedders
from standard.corpus.scan import Scan, pass_all
from standard.embedding.config import EmbeddingConfig
from standard.retrieval.retriever import CorpusRetriever, RetrievalSettings
from tests.support.hashing_embedder import HashingEmbedder
from tests.support.model_server.server import ModelServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from standard.corpus.collections import Collection
    from standard.database.pool import Pool

OWN = EmbedderSpec("own")
DIMENSIONS = 48


def endpoint(url: str) -> EmbedderSpec:
    """The embedder behind a model server."""
    return EmbedderSpec("openai:second", url)


def config_of(spec: EmbedderSpec) -> EmbeddingConfig:
    """How the tests open one."""
    return EmbeddingConfig(
        model=spec.model,
        base_url=spec.base_url,
        dimensions=spec.dimensions,
        max_tokens=spec.max_tokens,
        timeout_seconds=2.0,
    )


@asynccontextmanager
async def second_server(dimensions: int = DIMENSIONS) -> AsyncIterator[ModelServer]:
    """Yield a server of embeddings."""
    async with ModelServer([]) as server:
        server.dimensions = dimensions
        yield server


@asynccontextmanager
async def both(own: HashingEmbedder | None = None) -> AsyncIterator[Embedders]:
    """Yield the embedders of a process whose own one hashes words."""
    async with Embedders(own or HashingEmbedder(), OWN, config_of) as embedders:
        yield embedders


def no_scan(collection: Collection) -> tuple[Scan, str]:
    """Let everything pass, under no version."""
    return pass_all, ""


def retriever(pool: Pool, embedders: Embedders, view_seconds: float = 0.05) -> CorpusRetriever:
    """A retriever that searches with whatever embedder made the vectors."""
    own = embedders.own
    return CorpusRetriever(
        pool,
        embedder_id=own.id,
        embedder_checksum=own.checksum,
        settings=RetrievalSettings(view_seconds=view_seconds),
        embedder_of=embedders.of,
    )
