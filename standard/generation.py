"""One streamed answer of a model, as events: clean text, citations, and what became of it. Used by both routes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from standard.citations.attribute import attribute
from standard.citations.noanswer import NoAnswerFilter
from standard.citations.stream import CitationStream
from standard.domain.answer import Citation, Usage
from standard.domain.errors import LlmUnavailable
from standard.domain.event import CitationMade, TokenEmitted
from standard.llm.protocol import Completion
from standard.llm.tokens import estimate_tokens
from standard.outlet import Blocked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from standard.domain.event import Emit
    from standard.llm.protocol import LlmRequest
    from standard.sandbox.guarded_llm import GuardedLlm
    from standard.sandbox.render import TaggedPassage

T = TypeVar("T")

_PATIENCE = 48  # deltas that a model which declined may still send before its stream is closed


@dataclass(frozen=True, slots=True)
class Generated:
    """What a model wrote. `text` is what was emitted, citations point into it.

    `finish_reason` as in Completion, or `blocked`: the output guard behind `emit` ended the answer. `declined`: it said
    that the passages do not hold the answer, and nothing was emitted; `partial`: it said so of a part. `dropped` counts
    citations of sources that do not exist.
    """

    text: str
    citations: tuple[Citation, ...]
    finish_reason: str
    usage: Usage
    declined: bool = False
    partial: bool = False
    dropped: int = 0


async def generate(
    llm: GuardedLlm, request: LlmRequest, sources: Sequence[TaggedPassage], emit: Emit, *, first_index: int = 0
) -> Generated:
    """Stream an answer, emitting TokenEmitted and CitationMade as they come.

    What the model writes is not looked through here: an Outlet must stand behind `emit`. `sources` are the passages in
    the prompt; citations count from `first_index`. Raises LlmUnavailable only before anything was emitted, also for an
    answer without any text; a stream that breaks off later ends with finish_reason `cut`. Where `emit` is blocked (see
    standard.outlet) the stream is closed at once.
    """
    writing = _Writing(CitationStream(sources), NoAnswerFilter(), emit, first_index)
    try:
        completion = await _written(llm, request, writing)
        await writing.finish()
        if not writing.declined and writing.text and not writing.citations.citations:
            await writing.attribute(sources)
    except Blocked:
        spent = _estimate(request, output_tokens=estimate_tokens(writing.text))
        return Generated(writing.text, tuple(writing.citations.citations), "blocked", spent)
    if not writing.declined and not writing.text:
        reason = "nothing" if completion is None or completion.finish_reason != "content_filter" else "filtered"
        raise LlmUnavailable(f"The model answered without a word of text ({reason}).", kind="malformed")
    return Generated(
        text=writing.text,
        citations=tuple(writing.citations.citations),
        finish_reason="stop" if completion is None else completion.finish_reason,
        usage=_estimate(request) if completion is None else completion.usage,
        declined=writing.declined,
        partial=writing.filter.partial,
        dropped=writing.citations.dropped,
    )


async def _written(llm: GuardedLlm, request: LlmRequest, writing: _Writing) -> Completion | None:
    """Pass the stream on; its Completion, None where it was left before its end."""
    after_decline = 0
    async with closing(llm.stream(request)) as stream:
        async for item in stream:
            if isinstance(item, Completion):
                return item
            await writing.take(item)
            if writing.declined:
                after_decline += 1
                if after_decline > _PATIENCE:
                    break
    return None


@dataclass(slots=True)
class _Writing:
    """The way of a delta: the word for no answer out, tags out, events on."""

    citations: CitationStream
    filter: NoAnswerFilter
    emit: Emit
    index: int

    @property
    def text(self) -> str:
        return self.citations.text

    @property
    def declined(self) -> bool:
        return self.filter.declined

    async def take(self, delta: str) -> None:
        shown = self.filter.feed(delta)
        if shown:
            await self._emit_all(self.citations.feed(shown))

    async def finish(self) -> None:
        await self._emit_all(self.citations.feed(self.filter.finish()))
        await self._emit_all(self.citations.finish())

    async def attribute(self, sources: Sequence[TaggedPassage]) -> None:
        """Cite what the passages say nearly word for word, for a model that named no source."""
        found = attribute(self.text, sources)
        self.citations.citations.extend(found)
        await self._emit_all(found)

    async def _emit_all(self, items: Sequence[str | Citation]) -> None:
        for item in items:
            if isinstance(item, Citation):
                await self.emit(CitationMade(self.index, item))
                self.index += 1
            elif item:
                await self.emit(TokenEmitted(item))


@asynccontextmanager
async def closing(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close a stream however its reader leaves it: an abandoned one would keep its connection and its place."""
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


def _estimate(request: LlmRequest, output_tokens: int = 64) -> Usage:
    """Usage of a stream that was closed before its end; by default its output is the word for no answer and more."""
    prompt = sum(estimate_tokens(message.content.value) + 4 for message in request.messages)
    return Usage(prompt, output_tokens, llm_calls=1)
