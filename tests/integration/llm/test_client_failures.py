"""The client and a server that fails, lies or breaks off; and what errors may tell."""

from __future__ import annotations

import asyncio
import gc
import logging
import traceback
from dataclasses import replace

import pytest

from standard.domain.errors import LlmUnavailable
from standard.llm.config import LlmConfig
from standard.llm.protocol import Tool
from tests.support.llm_rig import asking, both_ways, failed, outcome, rig, streamed
from tests.support.model_server import (
    Call,
    Failure,
    Raw,
    Reply,
    always,
    failing,
)

SEARCH = Tool("search", "Search the corpus.", {"type": "object", "properties": {"query": {"type": "string"}}})
KEY = "sk-very-secret-0123456789"


# --- failures and retries ---------------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
async def test_a_passing_failure_is_tried_again(status: int, stream: bool) -> None:
    async with rig(failing(2, Failure(status), Reply("Forty."))) as r:
        assert (await outcome(r.llm, asking(), stream=stream)).text == "Forty."
        assert len(r.server.requests) == 3
        assert r.observer.failed == ["rate_limited" if status == 429 else "server"] * 2
        assert r.observer.calls[0].attempts == 3


@both_ways
@pytest.mark.parametrize(("status", "kind"), [(429, "rate_limited"), (500, "server"), (503, "server")])
async def test_a_lasting_failure_ends_after_the_retries(status: int, kind: str, stream: bool) -> None:
    async with rig(always(Failure(status))) as r:
        error = await failed(r.llm, asking(), stream=stream)
        assert error.kind == kind
        assert len(r.server.requests) == 3
        assert r.observer.failed == [kind] * 3
        assert r.observer.calls[0].error_kind == kind


@both_ways
@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
async def test_a_refusal_is_not_tried_again(status: int, stream: bool) -> None:
    async with rig(always(Failure(status, "no"))) as r:
        assert (await failed(r.llm, asking(), stream=stream)).kind == "refused"
        assert len(r.server.requests) == 1


@both_ways
async def test_retry_after_is_waited_for(stream: bool) -> None:
    async with rig(failing(1, Failure(429, retry_after=0.4), Reply("Forty."))) as r:
        await outcome(r.llm, asking(), stream=stream)
        first, second = r.server.requests
        assert 0.4 <= second.arrived - first.arrived < 0.8


@both_ways
async def test_a_retry_after_beyond_the_deadline_is_not_waited_for(stream: bool) -> None:
    async with rig(always(Failure(429, retry_after=60))) as r:
        loop = asyncio.get_running_loop()
        started = loop.time()
        error = await failed(r.llm, asking(timeout_seconds=5), stream=stream)
        assert loop.time() - started < 1
        assert (error.kind, error.retry_after_seconds) == ("rate_limited", 60)


@both_ways
async def test_a_server_that_is_away_is_a_connect_error_and_comes_back(stream: bool) -> None:
    async with rig(always(Reply("Forty."))) as r:
        await r.server.stop()
        error = await failed(r.llm, asking(), stream=stream)
        assert error.kind == "connect"
        assert "127.0.0.1" in error.message
        await r.server.start()
        assert (await outcome(r.llm, asking(), stream=stream)).text == "Forty."


@both_ways
async def test_a_connection_the_server_dropped_meanwhile_does_no_harm(stream: bool) -> None:
    async with rig(always(Reply("Forty."))) as r:
        await outcome(r.llm, asking(), stream=stream)
        await r.server.stop()
        await r.server.start()
        assert (await outcome(r.llm, asking(), stream=stream)).text == "Forty."


@both_ways
@pytest.mark.parametrize(
    "nonsense",
    [
        Raw(),
        Raw(b"{", "application/json"),
        Raw(b"[1, 2]", "application/json"),
        Raw(b"null", "application/json"),
        Raw(b'"text"', "application/json"),
        Raw(b"[" * 100_000, "application/json"),
        Raw(b'{"choices": [{"message": 3}], "usage": "none"', "application/json"),
        Raw(b"data: {oops\n\n", "text/event-stream"),
        Raw(b"data: \xff\xfe\n\n", "text/event-stream"),
        Raw(b"data: 17\n\ndata: [DONE]\n\n", "text/event-stream"),
        Reply(empty_choices=True),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_nonsense_is_malformed(nonsense: Raw | Reply, stream: bool) -> None:
    async with rig(always(nonsense)) as r:
        error = await failed(r.llm, asking(), stream=stream)
        assert error.kind == "malformed"
        assert "llm.base_url" in error.message
        assert len(r.server.requests) == 1


async def test_an_error_event_before_any_text_is_an_error() -> None:
    event = b'data: {"error": {"message": "the engine died", "code": 500}}\n\n'
    async with rig(failing(1, Raw(event, "text/event-stream"), Reply("Forty."))) as r:
        assert (await streamed(r.llm, asking()))[1].text == "Forty."
        assert r.observer.failed == ["server"]


async def test_a_stream_cut_before_text_is_tried_again() -> None:
    async with rig(failing(1, Reply("Forty.", cut_after=0), Reply("Forty."))) as r:
        assert (await streamed(r.llm, asking()))[1].text == "Forty."
        assert r.observer.failed == ["cut"]


async def test_a_unary_body_cut_short_is_tried_again() -> None:
    async with rig(failing(1, Reply("Forty.", cut_after=0), Reply("Forty."))) as r:
        assert (await r.llm.complete(asking())).text == "Forty."


async def test_a_stream_cut_after_text_ends_with_what_there_is() -> None:
    async with rig(always(Reply(pieces=("Forty", " knots", "."), cut_after=2))) as r:
        pieces, completion = await streamed(r.llm, asking())
        assert pieces == ["Forty", " knots"]
        assert (completion.text, completion.finish_reason) == ("Forty knots", "cut")
        assert completion.estimated
        assert len(r.server.requests) == 1, "nothing is tried again once text was passed on"
        assert r.observer.calls[0].error_kind == "cut"
        assert r.observer.failed == ["cut"]


async def test_a_stream_that_ends_politely_without_a_finish_reason_is_cut() -> None:
    async with rig([Reply("Forty", finish_reason="", done_line=False)]) as r:
        assert (await streamed(r.llm, asking()))[1].finish_reason == "cut"


async def test_tool_calls_cut_half_way_are_never_handed_on() -> None:
    async with rig(always(Reply(calls=(Call("search", {"query": "w"}),), finish_reason="", done_line=False))) as r:
        assert (await failed(r.llm, replace(asking(), tools=(SEARCH,)), stream=True)).kind == "malformed"


# --- secrets and hygiene ----------------------------------------------------------------------------------------------


@both_ways
async def test_the_key_is_in_no_error_no_trace_and_no_log(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    echo = Failure(400, f"Incorrect key {KEY} ({KEY[:12]}...) for Bearer {KEY}")
    async with rig([echo, Failure(401, f"bad {KEY}"), Raw(KEY.encode()), Reply("x")], api_key=KEY, retries=0) as r:
        for _ in range(3):
            error = await failed(r.llm, asking(), stream=stream)
            text = "".join(traceback.TracebackException.from_exception(error, capture_locals=False).format())
            assert KEY[:12] not in text + repr(error) + str(error)
            assert error.__context__ is None
            assert error.__cause__ is None
        assert KEY not in repr(LlmConfig("http://x", "m", api_key=KEY))
        assert KEY not in caplog.text


@both_ways
async def test_an_error_that_echoes_the_prompt_is_not_quoted(stream: bool) -> None:
    secret = "The merger with Northwind closes on the fourth of May."
    async with rig(always(Failure(400, f"invalid input: [{{'role': 'user', 'content': '{secret}'}}]"))) as r:
        error = await failed(r.llm, asking(secret), stream=stream)
        assert "Northwind" not in error.message
        assert "400" in error.message


async def test_no_key_sends_no_authorization_and_the_environment_adds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-elsewhere")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-from-elsewhere")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-from-elsewhere")
    async with rig(always(Reply("Forty."))) as r:
        await r.llm.complete(asking())
        await streamed(r.llm, asking())
        for request in r.server.requests:
            assert "authorization" not in request.headers
            assert not any("elsewhere" in value for value in request.headers.values())


async def test_lone_surrogates_are_sent_as_replacement_characters() -> None:
    async with rig([Reply("Forty.")]) as r:
        await r.llm.complete(asking("wind \ud800 limits"))
        assert r.server.requests[0].messages[-1]["content"] == "wind ? limits"


async def test_models_are_listed_and_a_silent_server_is_unavailable() -> None:
    async with rig(always(Reply("x"))) as r:
        assert await r.llm.list_models() == ("scripted",)
        await r.server.stop()
        with pytest.raises(LlmUnavailable):
            await r.llm.list_models(0.5)
        await r.server.start()


async def test_connections_are_used_again_and_nothing_leaks() -> None:
    async with rig(always(Reply("Forty."))) as r:
        for _ in range(20):
            await streamed(r.llm, asking())
            await r.llm.complete(asking())
        assert r.server.connections <= 2
        gc.collect()
        others = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
        await asyncio.sleep(0)
        assert all("_connected" in repr(task) or "_answer" in repr(task) or "read" in repr(task) for task in others)
