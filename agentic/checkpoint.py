"""Checkpoints of a run: JSON of known types, nothing that a database could turn into code.

LangGraph's own serialiser imports and calls whatever a stored value names. A run's checkpoint holds three types only,
each written and validated by pydantic under a versioned tag, so that a table somebody else can write to is no way into
the process, and a newer release can tell an older state apart. Everything else that LangGraph stores (interrupts,
resume values, branch markers) goes through its serialiser with an allowlist of its own types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import TypeAdapter, ValidationError

from agentic.state import Evidence, RunState
from standard.domain.errors import FailedPrecondition
from standard.domain.outcome import RouteResult

if TYPE_CHECKING:
    from collections.abc import Mapping

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
