"""A run that is cancelled lets go of what it waits for: the model's socket and the statement in the database.

Both are aimed at within 100 ms. What was measured is logged (--log-cli-level=info shows it); the bounds
asserted here are wide enough for a machine that is busy with something else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import numpy as np
import psycopg
import pytest
import pytest_asyncio
from numpy.typing import NDArray

from agentic.controllers.decide import decide_pattern
from agentic.controllers.offline import offline_pattern
from agentic.run import AgenticParts, answer_agentic, make_parts
from agentic.writer import StandardWriter
from standard.database.pool import DatabaseConfig, Pool, connection, open_pool
from standard.domain.event import EventBody
from standard.domain.passage import RetrievedPassage, Scope
from standard.domain.question import Question
from standard.domain.text import UntrustedText
from standard.llm.client import OpenAiLlm
from tests.integration.agentic.test_decide import DONE, HOP
from tests.support.memory_retriever import MemoryLibrary, embed, embed_text
from tests.support.model_server import Hang, ModelServer, Reply
from tests.support.model_server.behaviour import Behaviour
from tests.support.waiting import until

QUESTION = "How long is Razorbill and when was her captain born?"
GONE_WITHIN = 5.0
"""Seconds; the statement would run and the model would be silent far longer."""

_log = logging.getLogger(__name__)


@dataclass
class SlowLibrary(MemoryLibrary):
    """Its searches are a statement that sleeps in the database."""

    pool: Pool | None = None

    async def search(
        self, scope: Scope, text: str, vector: NDArray[np.float32], *, k: int
    ) -> Sequence[RetrievedPassage]:
        assert self.pool is not None
        async with connection(self.pool) as conn:
            await conn.execute("select pg_sleep(60) /* a slow search */")
        return await super().search(scope, text, vector, k=k)


@pytest_asyncio.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    async with open_pool(DatabaseConfig(url=database_url, statement_timeout=120.0)) as opened:
        yield opened


async def begin(library: MemoryLibrary, parts: AgenticParts) -> asyncio.Task[object]:
    async def emit(body: EventBody) -> None:
        del body

    question = Question(UntrustedText(QUESTION), top_k=1)
    first = await MemoryLibrary(library.passages).first(QUESTION, 1)
    return asyncio.create_task(answer_agentic(question, first, embed_text(QUESTION), parts=parts, emit=emit))


async def statement(watch: psycopg.AsyncConnection[tuple[int]], *, running: bool, seconds: float) -> None:
    """Wait until the slow statement runs, or runs no more."""
    async with asyncio.timeout(seconds):
        while True:
            cursor = await watch.execute(
                "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
                " and state = 'active' and query like '%a slow search%'"
            )
            row = await cursor.fetchone()
            assert row is not None
            if (row[0] > 0) is running:
                return
            await asyncio.sleep(0.002)


@pytest.mark.parametrize(
    ("script", "calls"),
    [
        pytest.param([Hang()], 1, id="judging, before the model says anything"),
        pytest.param([Hang(headers=True)], 1, id="judging, after the headers"),
        pytest.param(
            [HOP, DONE, Reply("She is 40 metres", stall_after=2)], 3, id="answering, in the middle of a stream"
        ),
    ],
)
async def test_the_models_socket_is_closed(
    script: list[Behaviour],
    calls: int,
    library: MemoryLibrary,
    server: ModelServer,
    llm: OpenAiLlm,
) -> None:
    server.script = script
    parts = make_parts(library, embed, StandardWriter(llm), offline_pattern(), patterns={"decide": decide_pattern(llm)})
    run = await begin(library, parts)
    await until(lambda: len(server.requests) == calls)
    await asyncio.sleep(0.05)
    asked = server.requests[-1]
    assert not asked.client_gone
    cancelled = asyncio.get_running_loop().time()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await until(lambda: bool(asked.client_gone), GONE_WITHIN)
    assert asked.client_gone
    assert asked.finished is None
    _log.info("the socket was closed after %.1f ms", 1000 * (asked.client_gone - cancelled))


async def test_the_statement_is_cancelled_in_the_database(
    library: MemoryLibrary, pool: Pool, database_url: str
) -> None:
    slow = SlowLibrary(library.passages, pool=pool)
    run = await begin(slow, make_parts(slow, embed, StandardWriter(None), offline_pattern()))
    clock = asyncio.get_running_loop().time
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as watch:
        await statement(watch, running=True, seconds=30.0)
        cancelled = clock()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await statement(watch, running=False, seconds=GONE_WITHIN)
        gone = clock() - cancelled
    _log.info("the statement was gone after %.1f ms", 1000 * gone)
    async with connection(pool) as conn:  # the connection is of use again, or another has taken its place
        assert await (await conn.execute("select 1")).fetchone() == (1,)
