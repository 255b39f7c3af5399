"""What the similarity guard would say to pairs of queries: `pointsman check-queries`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentic.embedding import as_bytes
from agentic.guards.query_similarity import compare, distance_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentic.library import Embed
    from agentic.settings import GuardSettings

_BATCH = 64


@dataclass(frozen=True, slots=True)
class QueryPair:
    """`a` was asked, now `b` is."""

    id: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class QueryCheck:
    """Whether `b` would be refused. `distance` is cosine distance (0-2) of the embeddings."""

    id: str
    distance: float
    refused: bool
    reason: str


async def check_queries(pairs: Sequence[QueryPair], embed: Embed, settings: GuardSettings) -> list[QueryCheck]:
    """Check pairs, in order. Queries must not be blank. Raises EmbedderUnavailable, InvalidInput."""
    checks: list[QueryCheck] = []
    for start in range(0, len(pairs), _BATCH):
        part = pairs[start : start + _BATCH]
        vectors = as_bytes(await embed([text for pair in part for text in (pair.a, pair.b)]))
        for index, pair in enumerate(part):
            distance = distance_of(vectors[2 * index], vectors[2 * index + 1])
            found = compare(pair.a, pair.b, distance, settings)
            checks.append(QueryCheck(pair.id, 0.0 if distance is None else distance, found.refused, found.reason))
    return checks
