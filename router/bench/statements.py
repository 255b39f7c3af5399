"""The statements of a search by themselves: what the retriever's own work is measured against.

The same SQL with the same parameters, side by side as the retriever runs it, rows fetched and dropped: no fusion, no
passages, no row security, no remembered view.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pgvector import HalfVector

from standard.database.pool import connection
from standard.retrieval import dense, lexical
from standard.retrieval.hydrate import passages_sql
from standard.retrieval.lexical import Within
from standard.retrieval.links import titles_sql
from standard.retrieval.names import title_spans
from standard.retrieval.retriever import TITLED_CHUNKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from standard.database.pool import Pool
    from standard.domain.passage import Scope
    from standard.retrieval.retriever import CorpusRetriever

    Statement = tuple[str, dict[str, object]]


async def bare_search(
    retriever: CorpusRetriever, scope: Scope, text: str, vector: NDArray[np.float32]
) -> tuple[Sequence[Statement], Sequence[Statement], Sequence[Statement]]:
    """Return the statements of a search of an unfiltered scope: of each leg, and the one that reads the passages."""
    view, visible = await retriever.opened(scope)
    if view.generation_id is None:
        raise ValueError(f"the collection {scope.collection} is empty")
    settings = retriever.settings
    shape = (view.generation_id, view.dimensions, view.distance)
    half = HalfVector(vector)
    scan: dict[str, object] = {
        "vector": half,
        "depth": settings.depth,
        "ef_search": str(min(max(settings.ef_search, settings.depth), 1000)),
        "max_scan_tuples": str(settings.max_scan_tuples),
    }
    titles = {
        "vector": half,
        "spans": title_spans(text, any_case=True),
        "limit": TITLED_CHUNKS,
        **visible.parameters,
    }
    words: dict[str, object] = {
        "text": text,
        "text_config": view.text_config,
        "depth": settings.depth,
        "shortlist": max(settings.depth, settings.shortlist),
        "posting_budget": settings.posting_budget,
        **visible.parameters,
    }
    legs = await retriever.legs(scope, text, vector)
    read = {
        "keys": list(legs.dense.keys[: settings.candidates]),
        "embeddings": settings.candidates,
        **visible.parameters,
    }
    return (
        [(dense.scan_sql(*shape, ""), scan), (titles_sql(*shape, visible.clause), titles)],
        [(lexical.bm25_sql(view.generation_id, "", Within.ALL), words)],
        [(passages_sql(view.generation_id, visible.clause), read)],
    )


async def run_bare(pool: Pool, search: tuple[Sequence[Statement], Sequence[Statement], Sequence[Statement]]) -> None:
    """Run them: both legs at once, a connection each, then what reads the passages."""
    near, words, read = search
    await asyncio.gather(_run(pool, near), _run(pool, words))
    await _run(pool, read)


async def _run(pool: Pool, statements: Sequence[Statement]) -> None:
    async with connection(pool) as conn, conn.cursor(binary=True) as cursor:
        for statement, parameters in statements:
            await cursor.execute(statement.encode(), parameters)
            await cursor.fetchall()
