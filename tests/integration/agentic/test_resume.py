"""Runs that go on: after a clarification, after kill -9 in any node, on another replica."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from agentic.checkpoint import open_checkpointer
from agentic.run import answer_agentic, resume_agentic
from standard.database.pool import DatabaseConfig, Pool, connection, open_pool
from standard.domain.answer import Outcome, StopReason
from standard.domain.errors import AlreadyExists, FailedPrecondition
from standard.domain.event import ClarificationAsked, EventBody, PassagesFound, QueryIssued, SufficiencyJudged
from standard.domain.outcome import RouteResult
from standard.domain.question import Question
from standard.domain.text import UntrustedText
from standard.llm.client import OpenAiLlm
from tests.integration.agentic.killed_run import QUESTION, parts_over, ships
from tests.integration.agentic.test_decide import DONE, HOP, reply
from tests.support.memory_retriever import embed_text
from tests.support.model_server import Hang, ModelServer, Recorded, Reply
from tests.support.model_server.behaviour import Behaviour

THREAD = "7:default:run-1"
ANSWER = Reply("She was born in 1970 [S2].")


class Collected:
    def __init__(self) -> None:
        self.events: list[EventBody] = []

    async def __call__(self, body: EventBody) -> None:
        self.events.append(body)

    def steps(self) -> list[int]:
        return [event.step for event in self.events if isinstance(event, QueryIssued)]


@pytest_asyncio.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    async with open_pool(DatabaseConfig(url=database_url)) as opened:
        yield opened


async def kept_threads(pool: Pool) -> int:
    async with connection(pool) as conn:
        row = await (await conn.execute("select count(distinct thread_id) from checkpoints")).fetchone()
    assert row is not None
    return int(row[0])


async def begin(pool: Pool, llm: OpenAiLlm, emit: Collected, text: str = QUESTION) -> RouteResult:
    library = ships()
    parts = await parts_over(pool, llm, library)
    first = await library.first(text, 1)
    return await answer_agentic(
        Question(UntrustedText(text), top_k=1), first, embed_text(text), parts=parts, emit=emit, thread=THREAD
    )


async def go_on(pool: Pool, llm: OpenAiLlm, emit: Collected, *replies: str, text: str = QUESTION) -> RouteResult:
    """As another replica would: everything made anew but the database."""
    parts = await parts_over(pool, llm, ships())
    question = Question(UntrustedText(text), top_k=1)
    return await resume_agentic(question, parts=parts, emit=emit, thread=THREAD, replies=replies)


async def test_a_clarification_waits_and_the_run_continues_with_the_answer(
    pool: Pool, server: ModelServer, llm: OpenAiLlm
) -> None:
    server.script = [reply(0.3, "ask", question="Which Razorbill?", options=["ship", "bird"]), HOP, DONE, ANSWER]
    before, after = Collected(), Collected()
    waiting = await begin(pool, llm, before)
    assert (waiting.outcome, waiting.clarification) == (Outcome.NEEDS_CLARIFICATION, "Which Razorbill?")
    assert waiting.text == "Which Razorbill?"
    assert ClarificationAsked("Which Razorbill?", ("ship", "bird")) in before.events
    assert await kept_threads(pool) == 1
    result = await go_on(pool, llm, after, "the ship")
    assert (result.outcome, result.stop_reason, result.steps) == (Outcome.ANSWERED, StopReason.SUFFICIENT, 2)
    assert result.text == "She was born in 1970."
    assert result.usage.llm_calls == 4
    assert after.steps() == [2]  # step 1 is not made again
    assert not [event for event in after.events if isinstance(event, ClarificationAsked)]
    told = server.requests[1].text("user")
    assert "Which Razorbill? -> the ship" in told
    assert "40 metres long" in told  # read again in the light of the answer
    assert "Which Razorbill?" in server.requests[-1].text("user")
    assert await kept_threads(pool) == 0


async def test_a_waiting_run_needs_an_input_and_an_unknown_one_is_refused(
    pool: Pool, server: ModelServer, llm: OpenAiLlm
) -> None:
    server.script = [reply(0.3, "ask", question="Which Razorbill?")]
    await begin(pool, llm, Collected())
    with pytest.raises(FailedPrecondition, match="waits for an answer"):
        await go_on(pool, llm, Collected(), "  ")
    parts = await parts_over(pool, llm, ships())
    with pytest.raises(FailedPrecondition, match="no run to resume"):
        await resume_agentic(
            Question(UntrustedText(QUESTION)), parts=parts, emit=Collected(), thread="7:default:other", replies=["x"]
        )


async def test_another_question_under_the_same_name_is_not_answered_by_the_run(
    pool: Pool, server: ModelServer, llm: OpenAiLlm
) -> None:
    server.script = [reply(0.3, "ask", question="Which Razorbill?")]
    await begin(pool, llm, Collected())
    with pytest.raises(AlreadyExists, match="another question"):
        await go_on(pool, llm, Collected(), "the ship", text="How long is Kittiwake?")
    assert len(server.requests) == 1


async def test_a_second_clarification_takes_the_second_reply_and_none_but_the_first_comes_before_it(
    pool: Pool, server: ModelServer, llm: OpenAiLlm
) -> None:
    server.script = [
        reply(0.3, "ask", question="Which Razorbill?"),
        reply(0.3, "ask", question="Her captain, or her builder?"),
        HOP,
        DONE,
        ANSWER,
    ]
    await begin(pool, llm, Collected())
    waiting = await go_on(pool, llm, Collected(), "the ship")
    assert waiting.clarification == "Her captain, or her builder?"
    with pytest.raises(FailedPrecondition, match="waits for an answer"):
        await go_on(pool, llm, Collected(), "the ship")  # as after a crash: the first reply is not the second one's
    with pytest.raises(AlreadyExists, match="another reply"):
        await go_on(pool, llm, Collected(), "the bird", "the captain")
    assert len(server.requests) == 2
    result = await go_on(pool, llm, Collected(), "the ship", "the captain")
    assert result.text == "She was born in 1970."


async def test_a_finished_run_leaves_nothing_in_the_database(pool: Pool, server: ModelServer, llm: OpenAiLlm) -> None:
    server.script = [HOP, DONE, ANSWER]
    result = await begin(pool, llm, Collected())
    assert result.text == "She was born in 1970."
    for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
        async with connection(pool) as conn:
            row = await (await conn.execute(f"select count(*) from {table}".encode())).fetchone()
        assert row == (0,)


async def test_many_processes_may_make_the_tables_at_once(pool: Pool) -> None:
    await asyncio.gather(*(open_checkpointer(pool) for _ in range(5)))


class Killer:
    """Answers from a script; at one request it kills the process that asks, in the middle of its call."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.pid = 0
        self.script = [HOP, DONE, ANSWER]
        self.answered = 0

    def __call__(self, request: Recorded) -> Behaviour:
        if request.number == self.at and self.pid:
            os.kill(self.pid, signal.SIGKILL)
            return Hang()
        behaviour = self.script[self.answered]
        self.answered += 1
        return behaviour


@pytest.mark.parametrize("node", ["first judgement", "second judgement", "answer", "search"])
async def test_kill_9_in_any_node_repeats_no_paid_action_but_the_one_in_flight(
    node: str, database_url: str, server: ModelServer, llm: OpenAiLlm
) -> None:
    at = {"first judgement": 0, "second judgement": 1, "answer": 2, "search": 99}[node]
    killer = Killer(at)
    server.script = killer
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.agentic.killed_run", database_url, server.base_url, THREAD, node
    )
    killer.pid = process.pid
    assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL
    killer.pid = 0
    emit = Collected()
    async with open_pool(DatabaseConfig(url=database_url)) as pool:
        result = await go_on(pool, llm, emit)
        assert await kept_threads(pool) == 0
    assert (result.text, result.stop_reason) == ("She was born in 1970.", StopReason.SUFFICIENT)
    assert result.steps == 2
    # Three paid calls, and the one that was in flight once more.
    assert len(server.requests) == 3 + (at < 3)
    searched_before = node in {"second judgement", "answer"}
    assert emit.steps() == ([] if searched_before else [2])
    found = [event for event in emit.events if isinstance(event, PassagesFound)]
    assert len(found) == (0 if searched_before else 1)
    judged = [event.step for event in emit.events if isinstance(event, SufficiencyJudged)]
    assert judged == {"first judgement": [1, 2], "search": [2], "second judgement": [2], "answer": []}[node]
