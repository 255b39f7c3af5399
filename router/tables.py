"""Tables of your own, from the settings: which there are, their pools, their embedders, their part in the catalogue."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from router.configs import database_config, embedder_config, retrieval_settings
from router.settings import BadSettings
from standard.corpus.paging import check_page_size, read_token, write_token
from standard.corpus.style import answer_style
from standard.database.pool import make_pool
from standard.domain.errors import InvalidInput, PointsmanError
from standard.embedding.factory import open_embedder
from standard.foreign.dispatch import ForeignTable, Tables
from standard.foreign.evidence import EvidenceVectors
from standard.foreign.library import ForeignLibrary
from standard.foreign.mapping import TableMapping, identifier, parse_field, with_layout
from standard.foreign.retriever import ForeignRetriever, TableEmbedder
from standard.sandbox.policy import POLICIES, ScanCache, policed
from standard.sandbox.scan import scan_chunk, shipped_scanner
from standard.tasks import task_group

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack

    import numpy as np
    from numpy.typing import NDArray

    from router.settings import Settings, TableSettings
    from standard.database.pool import Pool
    from standard.domain.question import AnswerStyle
    from standard.embedding.config import EmbeddingConfig
    from standard.embedding.protocol import Embedder
    from standard.foreign.mapping import Field
    from standard.foreign.retriever import EmbedQuery

_log = structlog.get_logger("pointsman.tables")

POOL_SIZE = 4
"""Most connections to a database of yours: a search takes two at a time."""
START_SECONDS = 20.0
"""Longest time that looking at the tables may hold up the start."""


def table_mapping(name: str, table: TableSettings) -> TableMapping:
    """The mapping of a section [tables.NAME]; raises BadSettings naming the key."""
    key = f"tables.{name}"
    try:
        mapping = TableMapping(
            name=name,
            layout=table.layout,
            table=table.table,
            collection=table.collection,
            id=_column(table.id, f"{key}.id"),
            content=_column(table.content, f"{key}.content"),
            embedding=_column(table.embedding, f"{key}.embedding"),
            document_id=_fields(table.document_id, f"{key}.document_id"),
            title=_fields(table.title, f"{key}.title"),
            uri=_fields(table.uri, f"{key}.uri"),
            position=_fields(table.position, f"{key}.position"),
            metadata=_column(table.metadata, f"{key}.metadata"),
            filters={each: identifier(column, f"{key}.filters.{each}") for each, column in table.filters.items()},
            only={identifier(column, f"{key}.only"): value for column, value in table.only.items()},
            tenant=table.tenant,
            tenant_column=_column(table.tenant_column, f"{key}.tenant_column"),
            groups=_fields(table.groups, f"{key}.groups"),
            tsvector=_column(table.tsvector, f"{key}.tsvector"),
            text_config=table.text_config,
            distance=table.distance,
            nulls=table.nulls,
            lexical=table.lexical,
        )
        with_layout(mapping)
    except InvalidInput as error:
        raise BadSettings([error.message]) from None
    return mapping


def table_style(name: str, table: TableSettings) -> AnswerStyle:
    """How answers from a table are written; raises BadSettings naming the key."""
    try:
        return answer_style(table.answer_instructions, table.answer_language)
    except InvalidInput as error:
        raise BadSettings([f"tables.{name}.{error.message}"]) from None


def _column(name: str, key: str) -> str:
    return identifier(name, key) if name else ""


def _fields(given: str | Sequence[str], key: str) -> tuple[Field, ...]:
    texts = [given] if isinstance(given, str) else given
    return tuple(parse_field(text, key) for text in texts if text)


async def open_tables(settings: Settings, pool: Pool, embedder: Embedder, stack: AsyncExitStack) -> Tables:
    """Open what the tables need, in `stack`: a pool a database, an embedder a model. `embedder` is the gateway's own.

    A table that cannot be used does not stop the start: it is named in the log, and its questions are refused with
    the same sentence until it is mended. Raises BadSettings; EmbedderUnavailable and FailedPrecondition for an embedder
    that cannot be opened.
    """
    mappings = {name: table_mapping(name, table) for name, table in settings.tables.items()}
    pools: dict[str, Pool] = {}
    embedders: dict[EmbeddingConfig, Embedder] = {embedder_config(settings.embedding): embedder}
    found: dict[str, ForeignTable] = {}
    for name, table in settings.tables.items():
        url = table.url.get_secret_value() if table.url else ""
        if url and url not in pools:
            pools[url] = await _open_pool(url, settings, stack)
        config = embedder_config(table.embedder or settings.embedding)
        if config not in embedders:
            embedders[config] = await stack.enter_async_context(open_embedder(config))
        theirs = embedders[config]
        ours = (theirs.id, theirs.checksum, theirs.dimensions) == (embedder.id, embedder.checksum, embedder.dimensions)
        retriever = ForeignRetriever(
            pools[url] if url else pool,
            mappings[name],
            TableEmbedder(theirs.id, theirs.dimensions, _one(theirs), ours=ours),
            scan_cache(settings),
            settings=retrieval_settings(settings),
            evidence=EvidenceVectors(embedder.embed_queries) if table.evidence and not ours else None,
        )
        library = ForeignLibrary(retriever, scan_policy=settings.sandbox.policy)
        found[name] = ForeignTable(retriever, library, table_style(name, table))
    await _look(found)
    return Tables(found)


def scan_cache(settings: Settings) -> ScanCache:
    """Verdicts of a table's passages under the installation's policy, made when a search first comes upon them."""
    policy, version = POLICIES[settings.sandbox.policy], shipped_scanner().version
    return ScanCache(policed(scan_chunk, policy, version), policy.version(version))


async def _open_pool(url: str, settings: Settings, stack: AsyncExitStack) -> Pool:
    config = replace(
        database_config(settings), url=url, min_size=0, max_size=POOL_SIZE, application_name="pointsman-tables"
    )
    pool = make_pool(url, config)
    await pool.open(wait=False)
    stack.push_async_callback(pool.close)
    return pool


def _one(embedder: Embedder) -> EmbedQuery:
    async def embed(text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = (await embedder.embed_queries([text]))[0]
        return vector

    return embed


async def _look(tables: dict[str, ForeignTable]) -> None:
    async def look(name: str, table: ForeignTable) -> None:
        try:
            view = await table.retriever.view()
        except PointsmanError as error:
            _log.error("a table of yours cannot be used now", table=name, problem=error.message)
        else:
            _log.info(
                "a table of yours",
                table=name,
                rows=view.corpus_size,
                distance=view.distance,
                index=view.index.name if view.index else "none: exact search",
                words=view.lexical.index or view.lexical.kind if view.lexical else "not looked up",
            )

    try:
        async with asyncio.timeout(START_SECONDS), task_group() as group:
            for name, table in tables.items():
                group.create_task(look(name, table))
    except TimeoutError:
        _log.error("looking at your tables took too long; going on", seconds=START_SECONDS)


def tables_on_page(
    tables: Tables, tenant: str, page_size: int, page_token: str, names: Sequence[str], next_token: str
) -> tuple[list[str], str]:
    """Merge the tables into a page of collections by name; `names` and `next_token` are the corpus's page.

    Returns the names of the page, in order, and the token of the next ("" = this was the last).
    """
    size, after = check_page_size(page_size), read_token(page_token)
    merged = sorted({*names, *(name for name in tables.names(tenant) if name > after)})
    more = bool(next_token) or len(merged) > size
    return merged[:size], write_token(merged[size - 1]) if more else ""
