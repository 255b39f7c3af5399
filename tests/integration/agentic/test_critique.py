"""The critique of a draft, against a model over real HTTP."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agentic.answer import NOT_CHECKED
from agentic.controllers.decide import decide_pattern
from agentic.controllers.offline import offline_pattern
from agentic.critique import DROPPED, UNCHECKED, Critic
from agentic.run import AgenticParts, make_parts
from agentic.settings import AgenticSettings
from agentic.writer import StandardWriter
from standard.domain.answer import Outcome, StopReason
from standard.domain.event import EventBody, OutputBlocked, QueryIssued, TokenEmitted
from standard.domain.outcome import RouteResult
from standard.domain.question import Budget
from standard.llm.client import OpenAiLlm
from standard.pipeline import IN_PART
from standard.prompts import NO_ANSWER_FOUND
from tests.integration.agentic.test_decide import reply
from tests.support.memory_retriever import MemoryLibrary, embed
from tests.support.model_server import Failure, Hang, ModelServer, Reply, json_reply
from tests.unit.agentic.scripted import run

QUESTION = "Who captains Razorbill and when was she born?"
ENOUGH = reply(0.9, "answer", relevant=["S1", "S2"])


def verdict(*supported: bool, useful: bool = True, missing: str = "", relevant: list[str] | None = None) -> Reply:
    sentences = [{"id": f"D{at}", "supported": said} for at, said in enumerate(supported, 1)]
    said = {} if relevant is None else {"relevant": relevant}
    return json_reply({**said, "sentences": sentences, "useful": useful, "missing": missing})


def parts(llm: OpenAiLlm, library: MemoryLibrary) -> AgenticParts:
    return make_parts(
        library, embed, StandardWriter(llm), offline_pattern(), patterns={"decide": decide_pattern(llm)},
        settings=AgenticSettings(critique=True), critic=Critic(llm),
    )  # fmt: skip


async def ask(
    llm: OpenAiLlm, library: MemoryLibrary, *, steps: int | None = None, seconds: float | None = None, top_k: int = 1
) -> tuple[RouteResult, list[EventBody]]:
    budget = Budget(max_steps=steps, max_seconds=seconds)
    return await run(QUESTION, parts(llm, library), library, top_k=top_k, budget=budget)


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


async def test_a_review_shows_all_that_the_writer_saw_and_what_was_asked(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    """A short answer cites its last link alone; without the others nobody could tell that it answers."""
    both = reply(0.9, "answer", relevant=["S1", "S2"])
    server.script = [both, Reply("1970 [S2]."), verdict(True)]
    await ask(llm, library, top_k=2)
    prompt = server.requests[2].text("user")
    assert 'passage id="S1"' in prompt
    assert 'passage id="S2"' in prompt
    assert "A1: the question itself (2 new sources, 2 of use)" in prompt
    assert "D1: 1970." in prompt


async def test_sources_beside_the_point_leave_the_prompt_of_the_second_draft(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    both = reply(0.9, "answer", relevant=["S1", "S2"], missing=["the port of registry"])
    server.script = [
        both,
        Reply("She is called Kittiwake [S2]."),
        verdict(False, useful=False, missing="Port Ness slipway", relevant=["S1"]),
        Reply("Anna Berg [S1]."),
        verdict(True),
    ]
    await ask(llm, library, top_k=2)
    before, after = server.requests[1].text("user"), server.requests[3].text("user")
    assert 'passage id="S2"' in before
    assert "the port of registry" in before
    assert 'passage id="S1"' in after
    assert 'passage id="S2"' not in after
    assert 'passage id="S3"' in after
    assert "the port of registry" not in after  # what was missing before the search need not be missing now


async def test_a_draft_about_something_else_is_no_answer(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    server.script = [Reply("Razorbill is 40 metres long [S1]."), verdict(True, useful=False, relevant=[])]
    result, events = await ask(llm, library, steps=1)
    assert result.outcome is Outcome.UNANSWERABLE
    assert result.text == shown(events) == NO_ANSWER_FOUND
    assert not result.citations


async def test_half_an_answer_says_that_it_is_one(server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary) -> None:
    server.script = [ENOUGH, Reply("Anna Berg is the captain [S1]."), verdict(True, useful=False, relevant=["S1"])]
    result, _ = await ask(llm, library)
    assert result.text == "Anna Berg is the captain."
    assert result.outcome is Outcome.ANSWERED_WITH_CAVEAT
    assert IN_PART in result.notices


async def test_a_heading_that_is_left_alone_is_no_answer(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    server.script = [Reply("This is known of her:\n\n- She was born in 1888 [S1]."), verdict(True, False, useful=False)]
    result, _ = await ask(llm, library, steps=1)
    assert result.outcome is Outcome.UNANSWERABLE
    assert result.text == NO_ANSWER_FOUND


async def test_what_the_one_more_search_found_needs_no_caveat_once_the_review_misses_nothing(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    server.script = [
        reply(0.5, "answer", relevant=["S1"], missing=["when she was born"]),
        Reply("Anna Berg is the captain [S1]."),
        verdict(True, useful=False, missing="birth year of Anna Berg", relevant=["S1"]),
        Reply("Anna Berg [S1] was born in 1970 [S2]."),
        verdict(True, relevant=["S1", "S2"]),
    ]
    result, _ = await ask(llm, library)
    assert (result.outcome, result.stop_reason, result.notices) == (Outcome.ANSWERED, StopReason.SUFFICIENT, ())


async def test_a_sentence_without_a_verdict_is_said_to_be_unchecked(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    server.script = [ENOUGH, Reply("Anna Berg is the captain [S1]. She joined in 1999 [S1]."), verdict(True)]
    result, _ = await ask(llm, library)
    assert UNCHECKED in result.notices
    assert result.outcome is Outcome.ANSWERED_WITH_CAVEAT


@pytest.mark.parametrize("name", ["D2", "[D2]", "d2", "2", " D02 "])
async def test_a_verdict_counts_however_its_sentence_is_named(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary, name: str
) -> None:
    said = {"sentences": [{"id": "D1", "supported": True}, {"id": name, "supported": False}], "useful": True}
    server.script = [ENOUGH, Reply("Anna Berg is the captain [S1]. She won a medal [S1]."), json_reply(said)]
    result, _ = await ask(llm, library)
    assert result.text == "Anna Berg is the captain."


async def test_a_name_that_is_none_is_asked_for_again(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    nameless = json_reply({"sentences": [{"id": "the second", "supported": False}], "useful": True})
    server.script = [
        ENOUGH,
        Reply("Anna Berg is the captain [S1]. She won a medal [S1]."),
        nameless,
        verdict(True, False),
    ]
    result, _ = await ask(llm, library)
    assert result.text == "Anna Berg is the captain."
    assert result.usage.llm_calls == 4


async def test_a_review_that_takes_too_long_leaves_the_draft_in_time(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    server.script = [Reply("Anna Berg is the captain [S1].", delay=0.5), Hang()]
    clock = asyncio.get_running_loop().time
    began = clock()
    result, events = await ask(llm, library, steps=1, seconds=1.5)
    assert clock() - began < 1.9  # the draft's half second is not given to the review once more
    assert result.text == shown(events) == "Anna Berg is the captain."
    assert NOT_CHECKED in result.notices


async def test_a_second_attempt_at_a_review_has_no_time_of_its_own(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    server.script = [Reply("Anna Berg is the captain [S1]."), Reply("fine", delay=0.7), Hang()]
    clock = asyncio.get_running_loop().time
    began = clock()
    result, _ = await ask(llm, library, steps=1, seconds=1.0)
    assert clock() - began < 1.4
    assert NOT_CHECKED in result.notices


async def test_what_is_kept_back_for_the_answer_may_be_used_to_check_it(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    """Half of the time is kept back here, and gone when the review begins."""
    server.script = [Reply("Anna Berg is the captain [S1].", delay=0.8), replace(verdict(True), delay=0.2)]
    result, _ = await ask(llm, library, steps=1, seconds=1.4)
    assert NOT_CHECKED not in result.notices
    assert result.usage.llm_calls == 2
    assert server.requests[1].body["max_tokens"] > 500
