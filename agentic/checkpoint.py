"""Checkpoints of a run: JSON of known types, nothing that a database could turn into code.

LangGraph's own serialiser imports and calls whatever a stored value names. A run's checkpoint holds three types only,
each written and validated by pydantic under a versioned tag, so that a table somebody else can write to is no way into
the process, and a newer release can tell an older state apart. Everything else that LangGraph stores (interrupts,
resume values, branch markers) goes through its serialiser with an allowlist of its own types.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from langgraph.checkpoint.base import WRITES_IDX_MAP, get_serializable_checkpoint_metadata
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from pydantic import TypeAdapter, ValidationError

from agentic.state import Evidence, RunState
from standard.database.pool import connection
from standard.domain.answer import Usage
from standard.domain.errors import FailedPrecondition
from standard.domain.outcome import RouteResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
    from psycopg import AsyncCursor
    from psycopg.rows import DictRow

    from standard.database.pool import Pool

_PLAIN = (str, int, float, bool)
_PUT = b"""
with off as (select set_config('synchronous_commit', 'off', true) as value),
kept as (
    insert into checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
    select %(thread)s, %(namespace)s, b.channel, b.version, b.type, b.blob
    from unnest(%(channels)s::text[], %(versions)s::text[], %(types)s::text[], %(blobs)s::bytea[])
        b(channel, version, type, blob)
    on conflict (thread_id, checkpoint_ns, channel, version) do nothing
)
insert into checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
select %(thread)s, %(namespace)s, %(id)s, %(parent)s::text, %(checkpoint)s, %(metadata)s from off
on conflict (thread_id, checkpoint_ns, checkpoint_id)
do update set checkpoint = excluded.checkpoint, metadata = excluded.metadata
"""
"""LangGraph's own two inserts, and the setting, in one round trip."""
_DELETE = b"""
with off as (select set_config('synchronous_commit', 'off', true) as value),
blobs as (delete from checkpoint_blobs where thread_id = %(thread)s),
writes as (delete from checkpoint_writes where thread_id = %(thread)s)
delete from checkpoints using off where thread_id = %(thread)s
"""
_FREE = frozenset({"branch:to:propose", "branch:to:guard", "branch:to:act", "branch:to:compress", "branch:to:judge"})
"""LangGraph's channels that say which node comes next, those before which a run may go back a little."""
_REMEMBERED = 10_000
_SETUP_LOCK = 0x706D_6368_6B70
"""Advisory lock of PostgreSQL under which one process makes the checkpoint tables."""

_TAGS: Mapping[type, str] = {
    RunState: "pointsman-run-1",
    Evidence: "pointsman-evidence-1",
    RouteResult: "pointsman-result-1",
}


class RunSerializer(SerializerProtocol):
    """Serialises the loop's channels as tagged JSON."""

    def __init__(self) -> None:
        self._adapters: dict[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in _TAGS}
        self._kinds = {tag: kind for kind, tag in _TAGS.items()}
        self._rest = JsonPlusSerializer(allowed_msgpack_modules=None)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:  # noqa: ANN401 - LangGraph's protocol
        """The value's tag and bytes."""
        tag = _TAGS.get(type(obj))
        if tag is None:
            return self._rest.dumps_typed(obj)
        return tag, self._adapters[type(obj)].dump_json(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:  # noqa: ANN401 - LangGraph's protocol
        """The value of a tag and bytes. Raises FailedPrecondition for a state that this release cannot read."""
        tag, raw = data
        kind = self._kinds.get(tag)
        if kind is None:
            if tag.startswith("pointsman-"):
                raise FailedPrecondition(f"the run was begun by another release ({tag}); ask again")
            return self._rest.loads_typed(data)
        try:
            return self._adapters[kind].validate_json(raw)
        except ValidationError as error:
            raise FailedPrecondition(f"the kept state of the run ({tag}) cannot be read; ask again") from error


class RunSaver(AsyncPostgresSaver):
    """LangGraph's saver over the gateway's pool, fit for many runs at once.

    Four things differ. It takes no lock: the original lets one operation of one run through at a time, although every
    operation has a connection of its own. Commits do not wait for the disk (synchronous_commit off): a killed gateway
    loses nothing; a killed database may lose the last moment, and a run then repeats its last node. What a node wrote
    is not stored twice: with durability `sync` its checkpoint follows at once, and the graph runs one node at a time.
    And what costs nothing to do again is not stored by itself: a checkpoint is kept once something was paid since the
    last one, passages changed, or the run is about to wait or to answer.
    """

    def __init__(self, pool: Pool) -> None:
        super().__init__(cast(Any, pool), serde=RunSerializer())
        self._pool = pool
        self._paid: OrderedDict[str, Usage] = OrderedDict()

    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncIterator[AsyncCursor[DictRow]]:
        async with self._pool.connection() as conn, AsyncExitStack() as stack:
            if pipeline:
                unit = conn.pipeline() if self.supports_pipeline else conn.transaction()
                await stack.enter_async_context(unit)
            cursor = await stack.enter_async_context(conn.cursor(binary=True, row_factory=dict_row))
            if pipeline:
                # Statements of a pipeline are one transaction, to which the setting is bound.
                await cursor.execute("select set_config('synchronous_commit', 'off', true)")
            yield cursor

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint in one statement, if it holds what should not be done again; see the class."""
        configurable = config["configurable"]
        thread, namespace = configurable["thread_id"], configurable["checkpoint_ns"]
        values = checkpoint["channel_values"]
        if self._is_due(thread, values, new_versions):
            plain = {name: value for name, value in values.items() if value is None or isinstance(value, _PLAIN)}
            large = {name: value for name, value in values.items() if name not in plain}
            versions = {name: version for name, version in new_versions.items() if name in large}
            blobs = self._dump_blobs(thread, namespace, large, versions)
            parameters = {
                "thread": thread,
                "namespace": namespace,
                "id": checkpoint["id"],
                "parent": configurable.get("checkpoint_id"),
                "checkpoint": Jsonb({**checkpoint, "channel_values": plain}),
                "metadata": Jsonb(get_serializable_checkpoint_metadata(config, metadata)),
                "channels": [blob[2] for blob in blobs],
                "versions": [str(blob[3]) for blob in blobs],
                "types": [blob[4] for blob in blobs],
                "blobs": [blob[5] for blob in blobs],
            }
            async with self._pool.connection() as conn:
                await conn.execute(_PUT, parameters)
        return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint["id"]}}

    def _is_due(self, thread: str, values: Mapping[str, Any], new_versions: ChannelVersions) -> bool:
        run = values.get("run")
        if not isinstance(run, RunState):
            return True
        may_wait = "evidence" not in new_versions and not _FREE.isdisjoint(values)
        if may_wait and self._paid.get(thread) == run.usage:
            return False
        self._paid[thread] = run.usage
        self._paid.move_to_end(thread)
        if len(self._paid) > _REMEMBERED:
            self._paid.popitem(last=False)
        return True

    async def adelete_thread(self, thread_id: str) -> None:
        """Forget a run."""
        self._paid.pop(thread_id, None)
        async with self._pool.connection() as conn:
            await conn.execute(_DELETE, {"thread": thread_id})

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store interrupts, resume values and errors; ordinary writes are in the checkpoint that follows."""
        if any(channel in WRITES_IDX_MAP for channel, _ in writes):
            await super().aput_writes(config, writes, task_id, task_path)


async def open_checkpointer(pool: Pool) -> RunSaver:
    """A saver of checkpoints over the gateway's pool; makes its tables where they are missing, one process at a time.

    Raises DatabaseUnavailable. The saver holds nothing that needs closing; it must not outlive the pool.
    """
    async with connection(pool, statement_timeout=None) as conn:
        if not conn.behind_pooler:
            await conn.execute("select pg_advisory_lock(%s)", [_SETUP_LOCK])
        try:
            await AsyncPostgresSaver(conn).setup()  # type: ignore[arg-type]
        finally:
            if not conn.behind_pooler:
                await conn.execute("select pg_advisory_unlock(%s)", [_SETUP_LOCK])
    return RunSaver(pool)


def thread_of(tenant: str, request_id: str) -> str:
    """The name of a run's checkpoints; request ids are unique within their tenant only."""
    return f"{len(tenant)}:{tenant}:{request_id}"
