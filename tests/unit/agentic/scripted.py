"""Controllers and a writer for tests of the loop without a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agentic.actions import Action, Proposal
from agentic.answer import AnswerRequest
from agentic.controllers.offline import offline_pattern
from agentic.controllers.protocol import Pattern
from agentic.judge import EvidenceJudge
from agentic.run import AgenticParts, answer_agentic, make_parts
from agentic.settings import AgenticSettings
from agentic.state import RunState
from standard.domain.answer import AnswerSource, Outcome, StopReason, Usage
from standard.domain.errors import LlmUnavailable
from standard.domain.event import Emit, EventBody, TokenEmitted
from standard.domain.outcome import RouteResult
from standard.domain.question import Budget, Question
from standard.domain.text import UntrustedText
from tests.support.memory_retriever import MemoryLibrary, embed, embed_text


@dataclass
class PlainWriter:
    """Writes the first passage. `away` makes the model fail; `requests` are kept."""

    away: bool = False
    usage: Usage = Usage(llm_calls=1, input_tokens=100, output_tokens=10)
    requests: list[AnswerRequest] = field(default_factory=list)

    @property
    def secret(self) -> None:
        return None

    async def generate(self, request: AnswerRequest, emit: Emit) -> RouteResult:
        if self.away:
            raise LlmUnavailable("the model is away", kind="connect")
        return await self._write(request, emit, AnswerSource.GENERATED, self.usage)

    async def extract(self, request: AnswerRequest, emit: Emit) -> RouteResult:
        return await self._write(request, emit, AnswerSource.EXTRACTIVE, Usage())

    async def _write(self, request: AnswerRequest, emit: Emit, source: AnswerSource, usage: Usage) -> RouteResult:
        self.requests.append(request)
        text = request.held[0].text.raw
        await emit(TokenEmitted(text))
        return RouteResult(text, source, Outcome.ANSWERED, StopReason.SUFFICIENT, usage=usage)


@dataclass
class FunctionController:
    """Proposes what a function of the state says."""

    decide: Callable[[RunState], Proposal | Action]

    async def propose(self, state: RunState) -> Proposal:
        said = self.decide(state)
        return said if isinstance(said, Proposal) else Proposal(said)


def scripted(*actions: Proposal | Action) -> FunctionController:
    """Proposes the actions one after another, the last for ever."""
    rest = list(actions)
    return FunctionController(lambda _: rest.pop(0) if len(rest) > 1 else rest[0])


def parts_with(
    controller: FunctionController,
    library: MemoryLibrary,
    *,
    writer: PlainWriter | None = None,
    settings: AgenticSettings | None = None,
    snippets: bool = False,
) -> AgenticParts:
    """Parts whose "decide" pattern is this controller, with the evidence judge."""
    pattern = Pattern("decide", controller, EvidenceJudge(), snippets=snippets)
    return make_parts(
        library,
        embed,
        writer or PlainWriter(),
        offline_pattern(),
        patterns={"decide": pattern},
        settings=settings,
    )


async def run(
    text: str, parts: AgenticParts, library: MemoryLibrary, *, budget: Budget | None = None, top_k: int = 3
) -> tuple[RouteResult, list[EventBody]]:
    """Run a question through the loop; the result and its events."""
    events: list[EventBody] = []

    async def emit(body: EventBody) -> None:
        events.append(body)

    question = Question(UntrustedText(text), top_k=top_k, budget=budget or Budget())
    first = await library.first(text, top_k)
    result = await answer_agentic(question, first, embed_text(text), parts=parts, emit=emit)
    return result, events
