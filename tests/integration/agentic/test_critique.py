"""The critique of a draft, against a model over real HTTP."""

from __future__ import annotations

from agentic.answer import NOT_CHECKED
from agentic.controllers.decide import decide_pattern
from agentic.controllers.offline import offline_pattern
from agentic.critique import DROPPED, Critic
from agentic.run import AgenticParts, make_parts
from agentic.settings import AgenticSettings
from agentic.writer import StandardWriter
from standard.domain.answer import Outcome, StopReason
from standard.domain.event import EventBody, OutputBlocked, QueryIssued, TokenEmitted
from standard.domain.outcome import RouteResult
from standard.domain.question import Budget
from standard.llm.client import OpenAiLlm
from tests.integration.agentic.test_decide import reply
from tests.support.memory_retriever import MemoryLibrary, embed
from tests.support.model_server import Failure, ModelServer, Reply, json_reply
from tests.unit.agentic.scripted import run

QUESTION = "Who captains Razorbill and when was she born?"
ENOUGH = reply(0.9, "answer", relevant=["S1", "S2"])


def verdict(*supported: bool, useful: bool = True, missing: str = "") -> Reply:
    sentences = [{"id": f"D{at}", "supported": said} for at, said in enumerate(supported, 1)]
    return json_reply({"sentences": sentences, "useful": useful, "missing": missing})


def parts(llm: OpenAiLlm, library: MemoryLibrary) -> AgenticParts:
    return make_parts(
        library, embed, StandardWriter(llm), offline_pattern(), patterns={"decide": decide_pattern(llm)},
        settings=AgenticSettings(critique=True), critic=Critic(llm),
    )  # fmt: skip


async def ask(
    llm: OpenAiLlm, library: MemoryLibrary, *, steps: int | None = None
) -> tuple[RouteResult, list[EventBody]]:
    return await run(QUESTION, parts(llm, library), library, top_k=1, budget=Budget(max_steps=steps))


def shown(events: list[EventBody]) -> str:
    return "".join(event.text for event in events if isinstance(event, TokenEmitted))


async def test_an_unsupported_sentence_is_never_shown(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    draft = Reply("Anna Berg is the captain [S1]. She won a medal [S1]. Razorbill is 40 metres long [S1].")
    server.script = [ENOUGH, draft, verdict(True, False, True)]
    result, events = await ask(llm, library)
    assert result.text == shown(events) == "Anna Berg is the captain. Razorbill is 40 metres long."
    assert [result.text[c.answer_start : c.answer_end] for c in result.citations] == [
        "Anna Berg is the captain", "Razorbill is 40 metres long",
    ]  # fmt: skip
    assert result.outcome is Outcome.ANSWERED_WITH_CAVEAT
    assert DROPPED in result.notices
    assert result.usage.llm_calls == 3


async def test_a_draft_of_no_use_leads_to_one_more_search(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    server.script = [
        ENOUGH,
        Reply("Anna Berg is the captain [S1]. She was born in 1888 [S1]."),
        verdict(True, False, useful=False, missing="birth year of Anna Berg"),
        Reply("Anna Berg [S1] was born in 1970 [S2]."),
        verdict(True),
    ]
    result, events = await ask(llm, library)
    assert [event.query for event in events if isinstance(event, QueryIssued)][1:] == ["birth year of Anna Berg"]
    assert result.text == shown(events) == "Anna Berg was born in 1970."
    assert "1888" not in shown(events)
    assert (result.outcome, result.stop_reason, result.steps) == (Outcome.ANSWERED, StopReason.SUFFICIENT, 2)
    assert result.usage.llm_calls == 5


async def test_without_a_step_left_the_supported_part_is_the_answer(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    server.script = [
        Reply("Anna Berg is the captain [S1]. She was born in 1888 [S1]."),
        verdict(True, False, useful=False, missing="birth year of Anna Berg"),
    ]
    result, events = await ask(llm, library, steps=1)
    assert result.text == shown(events) == "Anna Berg is the captain."
    assert result.stop_reason is StopReason.STEP_BUDGET


async def test_nothing_supported_is_no_answer(server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary) -> None:
    server.script = [Reply("She was born in 1888 [S1]."), verdict(False, useful=False)]
    result, events = await ask(llm, library, steps=1)
    assert result.outcome is Outcome.UNANSWERABLE
    assert result.text == shown(events)
    assert "1888" not in result.text
    assert not result.citations


async def test_a_review_that_fails_leaves_the_draft_with_a_notice(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    server.script = [ENOUGH, Reply("Anna Berg is the captain [S1]."), Failure(500)]
    result, events = await ask(llm, library)
    assert result.text == shown(events) == "Anna Berg is the captain."
    assert NOT_CHECKED in result.notices
    server.requests.clear()
    server.script = [ENOUGH, Reply("Anna Berg is the captain [S1]."), Reply("fine"), Reply("fine")]
    result, _ = await ask(llm, library)
    assert NOT_CHECKED in result.notices
    assert result.usage.llm_calls == 4


async def test_a_reviewed_draft_that_is_blocked_has_cost_what_it_cost(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    made = parts(llm, library)
    secret = made.writer.secret
    assert secret is not None
    server.script = [ENOUGH, Reply(f"{secret.prompt[:120]} [S1]."), verdict(True)]
    result, events = await run(QUESTION, made, library, top_k=1)
    assert (result.outcome, result.stop_reason) == (Outcome.BLOCKED, StopReason.OUTPUT_BLOCKED)
    assert isinstance(events[-1], OutputBlocked)
    assert result.usage.llm_calls == len(server.requests) == 3
    assert result.steps == 1
