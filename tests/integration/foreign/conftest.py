"""Tables of every layout, filled with the same passages, in one database; and retrievers over them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from standard.database.pool import DatabaseConfig, open_pool
from standard.foreign.mapping import TableMapping, parse_field
from standard.foreign.retriever import ForeignRetriever, TableEmbedder
from standard.retrieval.retriever import RetrievalSettings
from standard.sandbox.policy import POLICIES, ScanCache, policed
from standard.sandbox.scan import scan_chunk, shipped_scanner
from tests.conftest import _database
from tests.integration.foreign import recorded
from tests.support.hashing_embedder import HashingEmbedder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    import numpy as np
    from numpy.typing import NDArray

    from standard.database.embedded import EmbeddedPostgres

    OpenTable = Callable[..., AbstractAsyncContextManager[ForeignRetriever]]

DIMENSIONS = 64
EMBEDDER = HashingEmbedder(id="theirs", dimensions=DIMENSIONS)
THINGS = ["pump", "valve", "boiler", "turbine", "winch", "crane", "lantern", "anchor", "compass", "rudder"]
PLACES = ["shed", "jetty", "loft", "cellar", "tower", "quay"]
DEEDS = ["is inspected", "is painted", "is greased", "was replaced", "must stay locked"]


def make_passages() -> list[dict[str, Any]]:
    """Three passages a document, two years and two tenants; the same on every machine."""
    made: list[dict[str, Any]] = []
    for number in range(300):
        thing, place, deed = THINGS[number % 10], PLACES[number % 6], DEEDS[(number // 10) % 5]
        text = f"Unit {number}: the {thing} in the {place} {deed} every {2 + number % 7} weeks by crew {number % 13}."
        made.append(
            {
                "id": f"p{number}",
                "document_id": f"doc-{number // 3}",
                "title": f"Manual {number // 3}",
                "text": text,
                "url": f"https://example.org/manual/{number // 3}",
                "year": 2020 + number % 5,
                "page": 1 + number % 3,
                "tenant": "default" if number % 4 else "other",
                "readers": ["engineers"] if number % 10 == 7 else [],
            }
        )
    vectors = asyncio.run(EMBEDDER.embed_queries([each["text"] for each in made]))
    for each, vector in zip(made, vectors, strict=True):
        each["embedding"] = [float(value) for value in vector]
    return made


@pytest.fixture(scope="session")
def passages() -> list[dict[str, Any]]:
    return make_passages()


@pytest.fixture(scope="session")
def layouts_url(embedded_postgres: EmbeddedPostgres, passages: list[dict[str, Any]]) -> Iterator[str]:
    """A database with a table of each layout, as recorded."""
    with _database(embedded_postgres, "template0") as url:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("create extension vector")
            conn.execute((recorded.DDL + recorded.DJANGO).replace("{dimensions}", str(DIMENSIONS)).encode())
            recorded.fill(conn, passages)
        yield url


@pytest.fixture
def own_url(embedded_postgres: EmbeddedPostgres) -> Iterator[str]:
    """An empty database with pgvector, for a table of the test's own."""
    with _database(embedded_postgres, "template0") as url:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("create extension vector")
        yield url


MAPPINGS = {
    "langchain": TableMapping("t", layout="langchain", collection="handbook"),
    "langchain-community": TableMapping(
        "t", layout="langchain", table="older.langchain_pg_embedding", collection="handbook"
    ),
    "langchain-pgvectorstore": TableMapping("t", layout="langchain-pgvectorstore", table="handbook_store"),
    "llamaindex": TableMapping("t", layout="llamaindex", table="data_handbook"),
    "llamaindex-halfvec": TableMapping("t", layout="llamaindex", table="data_handbook_half"),
    "haystack": TableMapping("t", layout="haystack"),
    "django": TableMapping(
        "t",
        table="library_page",
        content="body",
        document_id=(parse_field("slug"),),
        title=(parse_field("heading"),),
        position=(parse_field("page_number"),),
        filters={"year": "year", "published": "published", "added": "added", "document_id": "slug"},
    ),
}
OPERATORS = {
    "langchain": "<=>",
    "langchain-community": "<=>",
    "langchain-pgvectorstore": "<#>",
    "llamaindex": "<=>",
    "llamaindex-halfvec": "<->",
    "haystack": "<=>",
    "django": "<->",
}


async def embed(text: str) -> NDArray[np.float32]:
    vector: NDArray[np.float32] = (await EMBEDDER.embed_queries([text]))[0]
    return vector


def scan_cache() -> ScanCache:
    version = shipped_scanner().version
    return ScanCache(policed(scan_chunk, POLICIES["standard"], version), version)


@asynccontextmanager
async def open_table(
    url: str, mapping: TableMapping, *, ours: bool = True, dimensions: int = DIMENSIONS
) -> AsyncIterator[ForeignRetriever]:
    """A retriever over one table, with a pool of its own."""
    async with open_pool(DatabaseConfig(url=url, min_size=0, max_size=3)) as pool:
        embedder = TableEmbedder("theirs", dimensions, embed, ours=ours)
        yield ForeignRetriever(pool, mapping, embedder, scan_cache(), settings=RetrievalSettings())
