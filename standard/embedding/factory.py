"""Open the embedder a configuration names, and close it again."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from standard.embedding.artifact import read_artifact
from standard.embedding.batching import BatchedEmbedder, MicroBatcher
from standard.embedding.builtin import BuiltinEmbedder
from standard.embedding.config import BUILTIN, ENDPOINT_PREFIX, EmbeddingConfig
from standard.embedding.endpoint import EndpointEmbedder
from standard.embedding.transformer import TransformerEmbedder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from standard.embedding.protocol import Embedder

# Batches at once: a local model has one thread for questions, an endpoint mostly makes us wait.
_PARALLEL_CALLS = 4


@asynccontextmanager
async def open_embedder(config: EmbeddingConfig | None = None) -> AsyncIterator[Embedder]:
    """Open an embedder whose concurrent questions are batched; leaving the context closes it.

    Raises Damaged (the shipped model), FailedPrecondition (an extra or a setting is missing), EmbedderUnavailable.
    """
    config = config or EmbeddingConfig()
    embedder = await _open(config)
    try:
        batcher = MicroBatcher(
            embedder.embed_queries,
            max_batch=config.max_batch,
            max_queued=config.max_queued,
            delay_seconds=config.batch_delay_seconds,
            parallel=_PARALLEL_CALLS if isinstance(embedder, EndpointEmbedder) else 1,
        )
        async with batcher:
            yield BatchedEmbedder(embedder, batcher)
    finally:
        await embedder.close()


async def _open(config: EmbeddingConfig) -> BuiltinEmbedder | TransformerEmbedder | EndpointEmbedder:
    if config.model == BUILTIN:
        return await asyncio.to_thread(_open_builtin, config)
    if not config.model.startswith(ENDPOINT_PREFIX):
        threads = max(config.threads, config.ingest_threads)
        return await asyncio.to_thread(TransformerEmbedder, config.model, threads=threads)
    endpoint = EndpointEmbedder(
        base_url=config.base_url,
        model=config.model.removeprefix(ENDPOINT_PREFIX),
        api_key=config.api_key,
        timeout_seconds=config.timeout_seconds,
        dimensions=config.dimensions,
        max_tokens=config.max_tokens,
    )
    try:
        await endpoint.connect()
    except BaseException:
        await endpoint.close()
        raise
    return endpoint


def _open_builtin(config: EmbeddingConfig) -> BuiltinEmbedder:
    return BuiltinEmbedder(read_artifact(), threads=config.threads, ingest_threads=config.ingest_threads)
