"""From a collection's name to what a search needs to know of it, remembered for a moment.

A view may be stale by its time to live. That is safe: a search against a generation that has just been replaced finds
nothing and looks again (see retriever), and access rights are never taken from here.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from standard.corpus.collections import EmbedderIdentity, EmbedderSpec, read_spec, read_style
from standard.database.pool import connection
from standard.domain.errors import FailedPrecondition, NotFound
from standard.domain.question import PLAIN, AnswerStyle
from standard.retrieval.pin import pin, pinned

if TYPE_CHECKING:
    from standard.database.pool import Pool

MAX_VIEWS = 1024
"""Collections remembered at once; beyond it the least recently used is forgotten."""


class Distance(StrEnum):
    """A distance operator of pgvector, as its operator class names it; embeddings are L2-normalised, so all agree."""

    INNER_PRODUCT = "halfvec_ip_ops"
    COSINE = "halfvec_cosine_ops"
    EUCLIDEAN = "halfvec_l2_ops"

    @property
    def operator(self) -> str:
        """The SQL operator; smaller is nearer."""
        return {"halfvec_ip_ops": "<#>", "halfvec_cosine_ops": "<=>", "halfvec_l2_ops": "<->"}[self.value]

    def similarity(self, distance: float) -> float:
        """Turn a distance of this operator between unit vectors into their cosine similarity."""
        match self:
            case Distance.INNER_PRODUCT:
                return -distance
            case Distance.COSINE:
                return 1.0 - distance
            case Distance.EUCLIDEAN:
                return 1.0 - distance * distance / 2.0


@dataclass(frozen=True, slots=True)
class CollectionView:
    """A collection and one of its generations, mostly the active one. `generation_id` is None where there is none.

    `distance` is the operator of the HNSW index (inner product where there is none and search is exact). `restricted`:
    some document is limited to access groups. `chunk_count` is that of the generation. `scan_policy` is the
    collection's own, "" for the installation's. `embedder_spec` opens the generation's embedder. `style`
    is how answers are written.
    """

    collection_id: int
    generation_id: int | None
    text_config: str
    dimensions: int
    embedder_id: str
    embedder_checksum: str
    chunk_count: int
    distance: Distance
    indexed: bool
    restricted: bool
    seen_at: float
    scan_policy: str = ""
    embedder_spec: EmbedderSpec | None = None
    style: AnswerStyle = PLAIN

    @property
    def embedder(self) -> EmbedderIdentity:
        """The embedder that made the generation's vectors."""
        return EmbedderIdentity(self.embedder_id, self.embedder_checksum, self.dimensions)


_QUERY = """
select c.collection_id, g.generation_id, c.text_config, coalesce(g.dimensions, 0), coalesce(g.embedder_id, ''),
    coalesce(g.embedder_checksum, ''), coalesce(g.chunk_count, 0),
    exists (select 1 from document d where d.collection_id = c.collection_id and d.access_groups <> '{}'),
    (select opclass.opcname
     from pg_inherits part
     join pg_class partition on partition.oid = part.inhrelid
     join pg_index on pg_index.indrelid = partition.oid and pg_index.indisvalid
     join pg_class index_class on index_class.oid = pg_index.indexrelid
     join pg_am method on method.oid = index_class.relam and method.amname = 'hnsw'
     join pg_opclass opclass on opclass.oid = pg_index.indclass[0]
     where part.inhparent = 'chunk'::regclass
       and pg_get_expr(partition.relpartbound, partition.oid) = format('FOR VALUES IN (%%L)', g.generation_id::text)
     limit 1),
    c.settings, g.embedder
from collection c
left join generation g on g.generation_id = coalesce(
        (select p.generation_id from generation p
         where p.generation_id = %(generation)s::bigint and p.collection_id = c.collection_id),
        c.active_generation)
where c.tenant = %(tenant)s and c.name = %(name)s
"""


class CollectionDirectory:
    """Looks collections up and remembers them for `time_to_live` seconds."""

    def __init__(self, pool: Pool, *, time_to_live: float = 1.0) -> None:
        self._pool = pool
        self._time_to_live = time_to_live
        self._views: OrderedDict[tuple[str, str, int | None], CollectionView] = OrderedDict()

    async def view(self, tenant: str, name: str, *, fresher_than: float | None = None) -> CollectionView:
        """Return the collection; raises NotFound, DatabaseUnavailable.

        `fresher_than` (the event loop's time) asks for a view made after that moment. A task that stays with one
        generation (see standard.retrieval.pin) gets that as long as it is there.
        """
        now = asyncio.get_running_loop().time()
        key = (tenant, name, pinned(tenant, name))
        known = self._views.get(key)
        oldest = now - self._time_to_live if fresher_than is None else fresher_than
        if known is None or known.seen_at <= oldest:
            known = self._views[key] = await self._look_up(*key, now)
        self._views.move_to_end(key)
        while len(self._views) > MAX_VIEWS:
            self._views.popitem(last=False)
        if known.generation_id is not None:
            pin(tenant, name, known.generation_id)
        return known

    async def _look_up(self, tenant: str, name: str, generation: int | None, now: float) -> CollectionView:
        if "\x00" in tenant or "\x00" in name:
            raise NotFound("there is no such collection: its name holds a NUL character")
        wanted = {"tenant": tenant, "name": name, "generation": generation}
        async with connection(self._pool) as conn:
            row = await (await conn.execute(_QUERY, wanted)).fetchone()
        if row is None:
            self._views.pop((tenant, name, generation), None)
            raise NotFound(f"there is no collection {name!r}; `pointsman ingest --collection NAME` creates one")
        collection, found, text_config, dimensions, embedder, checksum, chunks, restricted, opclass, *rest = row
        settings, spec = rest
        return CollectionView(
            collection_id=collection,
            generation_id=found,
            text_config=text_config,
            dimensions=dimensions,
            embedder_id=embedder,
            embedder_checksum=checksum,
            chunk_count=chunks,
            distance=Distance(opclass) if opclass in set(Distance) else Distance.INNER_PRODUCT,
            indexed=opclass is not None,
            restricted=restricted,
            seen_at=now,
            scan_policy=settings.get("scan_policy", ""),
            embedder_spec=read_spec(spec),
            style=read_style(settings),
        )


def require_embedder(view: CollectionView, embedder_id: str, checksum: str, dimensions: int) -> None:
    """Raise FailedPrecondition unless the collection was made with this embedder, so that vectors can be compared."""
    if view.generation_id is None:
        return
    if (view.embedder_id, view.embedder_checksum) != (embedder_id, checksum):
        raise FailedPrecondition(
            f"the collection was embedded with {view.embedder_id} ({view.embedder_checksum[:12]}), but this process "
            f"embeds with {embedder_id} ({checksum[:12]}); configure that embedder, or ingest the collection again"
        )
    if view.dimensions != dimensions:
        raise FailedPrecondition(
            f"the collection holds vectors of {view.dimensions} dimensions, the query has {dimensions}"
        )
