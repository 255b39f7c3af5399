"""Checkpoints of a run: JSON of known types, nothing that a database could turn into code.

LangGraph's own serialiser imports and calls whatever a stored value names. A run's checkpoint holds three types only,
each written and validated by pydantic under a versioned tag, so that a table somebody else can write to is no way into
the process, and a newer release can tell an older state apart. Everything else that LangGraph stores (interrupts,
resume values, branch markers) goes through its serialiser with an allowlist of its own types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import TypeAdapter, ValidationError

from agentic.state import Evidence, RunState
from standard.database.pool import connection
from standard.domain.errors import FailedPrecondition
from standard.domain.outcome import RouteResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from standard.database.pool import Pool

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


async def open_checkpointer(pool: Pool) -> AsyncPostgresSaver:
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
    return AsyncPostgresSaver(pool, serde=RunSerializer())  # type: ignore[arg-type]


def thread_of(tenant: str, request_id: str) -> str:
    """The name of a run's checkpoints; request ids are unique within their tenant only."""
    return f"{len(tenant)}:{tenant}:{request_id}"
