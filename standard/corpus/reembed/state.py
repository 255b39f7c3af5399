"""What is known of a change of embedder, and its beginning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from standard.corpus.chunking import Chunking
from standard.corpus.collections import (
    PARTITIONED,
    EmbedderIdentity,
    EmbedderSpec,
    get_collection,
    make_generation,
    partition,
    read_spec,
)
from standard.corpus.embedders import identity_of
from standard.database.pool import connection, the_row, transaction
from standard.domain.errors import FailedPrecondition, InvalidInput, NotFound

if TYPE_CHECKING:
    import datetime as dt

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from standard.corpus.collections import Collection
    from standard.corpus.embedders import Embedders
    from standard.database.pool import Pool

State: TypeAlias = Literal["building", "paused", "ready", "switched"]
"""building: documents are embedded; paused: that failed, and is tried again now and then; ready: a switch is possible;
switched: the new generation answers, the former is kept up to date."""
Action: TypeAlias = Literal["start", "resume", "switch", "roll_back", "finish", "cancel"]

_INDEX_BYTES_A_ROW = 600  # of an HNSW index besides the vector; as standard.corpus.index reckons


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two generations: its embedder, how that is opened (None: the process's own), passages and bytes."""

    generation_id: int
    embedder: EmbedderIdentity
    spec: EmbedderSpec | None
    passages: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class Reembedding:
    """A change as it was when read.

    `remaining` documents are not in the generation that does not answer, None while nobody has counted; of `documents`
    in the collection. `rate` is in passages a second. `problem` says why it does not go on, "" where it does, and
    `attempt_at` when it is tried again; `attempts` failed in a row.
    """

    collection_id: int
    tenant: str
    name: str
    state: State
    new: Side
    former: Side
    documents: int
    remaining: int | None
    rate: float
    problem: str
    attempts: int
    attempt_at: dt.datetime
    started_at: dt.datetime
    started_by: str
    updated_at: dt.datetime
    switched_at: dt.datetime | None
    cancelled: bool

    @property
    def behind(self) -> Side:
        """The generation that does not answer."""
        return self.former if self.state == "switched" else self.new

    @property
    def answering(self) -> Side:
        """The generation that answers."""
        return self.new if self.state == "switched" else self.former


@dataclass(frozen=True, slots=True)
class ReembeddingChange:
    """Who did what to a collection's embedder, and when. Embedders are named by their ids."""

    action: Action
    from_embedder: str
    to_embedder: str
    changed_at: dt.datetime
    changed_by: str


_BYTES = """(select coalesce(sum(pg_total_relation_size(to_regclass(part || '_' || {side}.generation_id))), 0)
     from unnest(array['chunk', 'sentence', 'posting']) part)::bigint"""
_SIDE = (
    "{side}.generation_id, {side}.embedder_id, {side}.embedder_checksum, {side}.dimensions, {side}.embedder,"
    " {side}.chunk_count, " + _BYTES
)
_SELECT = f"""
select r.collection_id, c.tenant, c.name, r.state,
    (select count(*) from document d where d.collection_id = r.collection_id), r.remaining, r.rate, r.problem,
    r.attempts, r.attempt_at, r.started_at, r.started_by, r.updated_at, r.switched_at, r.cancelled,
    {_SIDE.format(side="n")}, {_SIDE.format(side="f")}
from reembedding r
join collection c using (collection_id)
join generation n on n.generation_id = r.generation_id
join generation f on f.generation_id = r.former_id
"""  # noqa: S608 - constants


def _side(row: tuple[Any, ...]) -> Side:
    generation, model, checksum, dimensions, spec, passages, size = row
    return Side(generation, EmbedderIdentity(model, checksum, dimensions), read_spec(spec), passages, size)


def _read(row: tuple[Any, ...]) -> Reembedding:
    collection_id, tenant, name, state, *rest = row[:15]
    return Reembedding(collection_id, tenant, name, state, _side(row[15:22]), _side(row[22:29]), *rest)


async def get_reembedding(pool: Pool, tenant: str, name: str) -> Reembedding:
    """Return the change that a collection is in; raises NotFound where it is in none, or there is no collection."""
    async with connection(pool) as conn:
        cursor = await conn.execute(_SELECT.encode() + b"where c.tenant = %s and c.name = %s", [tenant, name])
        row = await cursor.fetchone()
    if row is None:
        await get_collection(pool, tenant, name)
        raise NotFound(f"the embedder of the collection {name!r} is not being changed; pointsman reembed start")
    return _read(row)


async def reembedding_of(pool: Pool, collection_id: int) -> Reembedding | None:
    """Return the change that a collection is in, None where it is in none."""
    async with connection(pool) as conn:
        row = await (await conn.execute(_SELECT.encode() + b"where r.collection_id = %s", [collection_id])).fetchone()
    return None if row is None else _read(row)


async def changes_of(pool: Pool, tenant: str, name: str, *, limit: int = 20) -> list[ReembeddingChange]:
    """Return who changed the embedder of a collection of that name, latest first."""
    async with connection(pool) as conn:
        cursor = await conn.execute(
            "select action, from_embedder, to_embedder, changed_at, changed_by from reembedding_change"
            " where tenant = %s and collection = %s order by change_id desc limit %s",
            [tenant, name, limit],
        )
        return [ReembeddingChange(*row) for row in await cursor.fetchall()]


async def note_change(
    conn: AsyncConnection[TupleRow], tenant: str, name: str, action: Action, before: str, after: str, by: str
) -> None:
    """Note who did what, within the transaction that does it; `before` and `after` are embedders' ids."""
    await conn.execute(
        "insert into reembedding_change (tenant, collection, action, from_embedder, to_embedder, changed_by)"
        " values (%s, %s, %s, %s, %s, %s)",
        [tenant, name, action, before, after, by],
    )


async def start_reembedding(
    pool: Pool, tenant: str, name: str, spec: EmbedderSpec, embedders: Embedders, *, by: str
) -> Reembedding:
    """Begin to embed a collection with another embedder, or go on at once with the same change.

    The embedder is opened first, so that one that cannot be had is refused here. Raises NotFound; InvalidInput for
    vectors that cannot be indexed; FailedPrecondition where the collection has that embedder, or is in another change;
    EmbedderUnavailable, Damaged.
    """
    collection = await get_collection(pool, tenant, name)
    embedder = await embedders.open(spec)
    await embedder.embed_queries(["ready?"])
    new = identity_of(embedder)
    if not 1 <= new.dimensions <= 4000:
        raise InvalidInput("model", f"gives {new.dimensions} dimensions; 4,000 are the most that can be indexed")
    under_way = await reembedding_of(pool, collection.collection_id)
    if under_way is not None:
        if under_way.new.embedder != new:
            raise FailedPrecondition(
                f"the collection {name!r} is being changed to {under_way.new.embedder.id} ({under_way.state}); "
                + ("finish that first" if under_way.state == "switched" else "cancel that first")
            )
        await _resume(pool, under_way, by)
        return await get_reembedding(pool, tenant, name)
    if new == collection.embedder:
        raise FailedPrecondition(f"the collection {name!r} is embedded with {new.id} ({new.checksum[:12]}) already")
    if spec.dimensions is None and not spec.named:
        spec = EmbedderSpec(spec.model, spec.base_url, new.dimensions, spec.max_tokens)
    await _begin(pool, collection, new, embedders.own_spec if new == embedders.own_identity else spec, embedders, by)
    return await get_reembedding(pool, tenant, name)


async def _begin(
    pool: Pool, collection: Collection, new: EmbedderIdentity, spec: EmbedderSpec, embedders: Embedders, by: str
) -> None:
    try:
        async with transaction(pool) as conn:
            if collection.embedder_spec is None and collection.embedder == embedders.own_identity:
                # so that there is a way back once the settings name another embedder
                kept = Jsonb(embedders.own_spec.describe())
                await conn.execute(
                    "update generation set embedder = %s where generation_id = %s", [kept, collection.generation_id]
                )
            generation = await make_generation(
                conn, collection.collection_id, new, Chunking().describe(), spec=spec, state="building"
            )
            await conn.execute(
                "insert into reembedding (collection_id, generation_id, former_id, started_by) values (%s, %s, %s, %s)",
                [collection.collection_id, generation, collection.generation_id, by],
            )
            await note_change(conn, collection.tenant, collection.name, "start", collection.embedder.id, new.id, by)
    except psycopg.errors.UniqueViolation as problem:
        raise FailedPrecondition(f"the embedder of {collection.name!r} is being changed by somebody else") from problem
    except psycopg.errors.ForeignKeyViolation as problem:
        raise NotFound(f"there is no collection {collection.name!r}") from problem


async def _resume(pool: Pool, under_way: Reembedding, by: str) -> None:
    async with transaction(pool) as conn:
        await conn.execute(
            "update reembedding set attempts = 0, attempt_at = now(), problem = '', cancelled = false,"
            " state = case when state = 'paused' then 'building' else state end where collection_id = %s",
            [under_way.collection_id],
        )
        ids = under_way.former.embedder.id, under_way.new.embedder.id
        await note_change(conn, under_way.tenant, under_way.name, "resume", *ids, by)


async def disk_needed(pool: Pool, collection: Collection, dimensions: int) -> int:
    """Estimate the bytes of a generation of `dimensions` beside the collection's: vectors grow, the rest stays."""
    generation = collection.generation_id
    async with connection(pool) as conn:
        cursor = await conn.execute(
            sql.SQL(
                "select (select count(*) from {}), (select sum(pg_total_relation_size(part::regclass))"
                " from unnest(%s::text[]) part)"
            ).format(partition("sentence", generation)),
            [[f"{table}_{generation}" for table in PARTITIONED]],
        )
        row = await the_row(cursor)
    sentences, size = int(row[0]), int(row[1])
    grown = 2 * (dimensions - collection.embedder.dimensions)
    # vectors lie in the chunks, in their sentences, and once more in the index
    more = grown * (2 * collection.passage_count + sentences) + _INDEX_BYTES_A_ROW * collection.passage_count
    return max(0, size + more)
