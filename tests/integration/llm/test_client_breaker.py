"""A model server in trouble is left alone, tried again, and never retried beyond a share of the calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from standard.llm.client import OpenAiLlm
from standard.llm.config import LlmConfig
from tests.support.llm_rig import asking, both_ways, failed, outcome
from tests.support.model_server import Failure, Hang, ModelServer, Recorded, Reply, always
from tests.support.waiting import until

WELL = Reply("Twelve knots.")


@both_ways
async def test_after_failures_in_a_row_the_server_is_left_alone_then_one_call_tries_it(*, stream: bool) -> None:
    async with (
        ModelServer(always(Failure(500))) as server,
        OpenAiLlm(LlmConfig(server.base_url, "m", retries=0, breaker_failures=3, breaker_seconds=0.3)) as llm,
    ):
        for _ in range(3):
            assert (await failed(llm, asking(), stream=stream)).kind == "server"
        refused = await failed(llm, asking(), stream=stream)
        assert (refused.kind, refused.retry_after_seconds) == ("left_alone", 0.3)
        assert len(server.requests) == 3

        await asyncio.sleep(0.35)
        server.script = always(Hang())
        trying = asyncio.create_task(failed(llm, asking(timeout_seconds=60), stream=stream))
        await server.arrived(4)
        assert (await failed(llm, asking(), stream=stream)).kind == "left_alone"
        trying.cancel()  # a caller who leaves says nothing of the server: the next one tries it
        await asyncio.wait([trying])
        server.script = always(WELL)
        assert (await outcome(llm, asking(), stream=stream)).text == "Twelve knots."
        assert (await outcome(llm, asking(), stream=stream)).text == "Twelve knots."


async def test_refusals_and_impatient_callers_do_not_count_against_the_server() -> None:
    config = {"retries": 0, "breaker_failures": 2, "breaker_seconds": 60.0}
    async with (
        ModelServer(always(Failure(404))) as server,
        OpenAiLlm(LlmConfig(server.base_url, "m", **config)) as llm,  # type: ignore[arg-type]
    ):
        for _ in range(4):
            assert (await failed(llm, asking(), stream=False)).kind == "refused"
        server.script = always(Hang())
        for _ in range(4):
            assert (await failed(llm, asking(timeout_seconds=0.05), stream=False)).kind == "timeout"
        server.script = always(WELL)
        assert (await outcome(llm, asking(), stream=False)).text == "Twelve knots."


async def test_retries_are_a_share_of_the_calls() -> None:
    def flaky(request: Recorded) -> Failure | Reply:
        return Failure(503) if request.number % 2 == 0 else WELL

    config = LlmConfig("", "m", retries=5, retry_budget=0.1, backoff_seconds=0.001)
    async with ModelServer(flaky) as server, OpenAiLlm(replace(config, base_url=server.base_url)) as llm:
        for _ in range(60):
            await asyncio.gather(llm.complete(asking()), return_exceptions=True)
        await until(lambda: len(server.requests) >= 60)
        assert len(server.requests) <= 60 + 3 + 6


async def test_without_a_budget_nothing_is_retried() -> None:
    async with (
        ModelServer(always(Failure(503))) as server,
        OpenAiLlm(LlmConfig(server.base_url, "m", retries=5, retry_budget=0.0)) as llm,
    ):
        assert (await failed(llm, asking(), stream=False)).kind == "server"
        assert len(server.requests) == 1
