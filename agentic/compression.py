"""Compression of the context (types; the work follows)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from standard.domain.answer import Usage

if TYPE_CHECKING:
    from agentic.state import RunState


@dataclass(frozen=True, slots=True)
class Compressed:
    """The state after it; token counts of the context before and after; ids of the passages whose text left it."""

    state: RunState
    tokens_before: int
    tokens_after: int
    passage_ids: tuple[str, ...] = ()
    usage: Usage = Usage()


class Compress(Protocol):
    """Puts a summary in the place of raw passages."""

    async def __call__(self, state: RunState) -> Compressed:
        """Compress if it pays. May raise LlmUnavailable or UnreadableOutput."""
        ...
