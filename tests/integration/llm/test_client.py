"""The client against a real HTTP server that behaves well, badly, slowly or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypedDict, Unpack

import pytest

from standard.domain.errors import LlmUnavailable, Overloaded
from standard.llm.capabilities import Feature
from standard.llm.client import OpenAiLlm
from standard.llm.config import LlmConfig, Price
from standard.llm.protocol import Completion, LlmRequest, Message, Purpose, Tool, ToolCall
from standard.sandbox.prompt import PromptText
from tests.support.llm_requests import CountingObserver, asking
from tests.support.model_server import (
    Behaviour,
    Call,
    Failure,
    Hang,
    ModelServer,
    Raw,
    Recorded,
    Reply,
    Script,
    always,
    failing,
    repeating_itself,
)

SEARCH = Tool("search", "Search the corpus.", {"type": "object", "properties": {"query": {"type": "string"}}})
SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "number"}},
    "required": ["score"],
    "additionalProperties": False,
}
KEY = "sk-very-secret-0123456789"


class Rig:
    """A server, a client of it, and what the observer saw."""

    def __init__(self, server: ModelServer, llm: OpenAiLlm, observer: CountingObserver) -> None:
        self.server = server
        self.llm = llm
        self.observer = observer


class Settings(TypedDict, total=False):
    prices: dict[str, Price]
    models: dict[Purpose, str]
    first_token_seconds: float
    idle_seconds: float
    retries: int
    max_concurrency: int
    max_waiting: int


@asynccontextmanager
async def rig(
    script: Script, *, lacks: tuple[str, ...] = (), api_key: str = "", **config: Unpack[Settings]
) -> AsyncIterator[Rig]:
    async with ModelServer(script, lacks=lacks, api_key=api_key) as server:
        observer = CountingObserver()
        settings = LlmConfig(server.base_url, "scripted", api_key=api_key, backoff_seconds=0.01)
        async with OpenAiLlm(replace(settings, **config), observer) as llm:
            yield Rig(server, llm, observer)


async def streamed(llm: OpenAiLlm, request: LlmRequest) -> tuple[list[str], Completion]:
    pieces: list[str] = []
    async for item in llm.stream(request):
        if isinstance(item, Completion):
            return pieces, item
        pieces.append(item)
    pytest.fail("the stream ended without a completion")


async def failed(llm: OpenAiLlm, request: LlmRequest, *, stream: bool) -> LlmUnavailable:
    with pytest.raises(LlmUnavailable) as caught:
        await (streamed(llm, request) if stream else llm.complete(request))
    return caught.value


both_ways = pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])


async def outcome(llm: OpenAiLlm, request: LlmRequest, *, stream: bool) -> Completion:
    return (await streamed(llm, request))[1] if stream else await llm.complete(request)


# --- plain answers ----------------------------------------------------------------------------------------------------


@both_ways
async def test_text_usage_and_cost_arrive(stream: bool) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 400}}
    price = Price(input=2.0, cached=0.5, output=8.0)
    async with rig([Reply("Forty knots [S1].", usage=usage)], prices={"scripted": price}) as r:
        completion = await outcome(r.llm, asking(), stream=stream)
        assert completion.text == "Forty knots [S1]."
        assert completion.finish_reason == "stop"
        assert not completion.estimated
        assert (completion.usage.input_tokens, completion.usage.cached_tokens) == (1000, 400)
        assert completion.usage.output_tokens == 10
        assert completion.usage.llm_calls == 1
        assert completion.usage.cost_usd == pytest.approx((600 * 2 + 400 * 0.5 + 10 * 8) / 1e6)
        call = r.observer.calls[0]
        assert (call.purpose, call.error_kind, call.attempts) == (Purpose.ANSWER, "", 1)
        assert call.usage == completion.usage
        assert (call.first_token_seconds is not None) == stream


async def test_a_stream_yields_pieces_as_they_arrive() -> None:
    async with rig([Reply(pieces=("Forty", " knots"), token_delay=0.2)]) as r:
        loop = asyncio.get_running_loop()
        times = [loop.time() async for item in r.llm.stream(asking()) if isinstance(item, str)]
        assert times[1] - times[0] > 0.15


@both_ways
async def test_usage_is_estimated_where_the_server_does_not_tell(stream: bool) -> None:
    async with rig([Reply("Forty knots.", usage=False)], prices={"scripted": Price(1, 1, 1)}) as r:
        completion = await outcome(r.llm, asking("word " * 400), stream=stream)
        assert completion.estimated
        assert 400 <= completion.usage.input_tokens <= 700
        assert 2 <= completion.usage.output_tokens <= 6
        assert completion.usage.cost_usd > 0


@both_ways
async def test_a_purpose_may_have_its_own_model(stream: bool) -> None:
    async with rig(always(Reply("yes")), models={Purpose.JUDGE: "small"}) as r:
        await outcome(r.llm, asking(), stream=stream)
        judged = await outcome(r.llm, replace(asking(), purpose=Purpose.JUDGE), stream=stream)
        assert [request.body["model"] for request in r.server.requests] == ["scripted", "small"]
        assert judged.model == "small"


@both_ways
async def test_tool_calls_are_put_together(stream: bool) -> None:
    request = replace(asking(), tools=(SEARCH,))
    async with rig([Reply(calls=(Call("search", {"query": "ünïcode wind limits"}),))]) as r:
        completion = await outcome(r.llm, request, stream=stream)
        assert completion.finish_reason == "tool_calls"
        assert completion.tool_calls == (
            ToolCall("call_0_0", "search", '{"query": "\\u00fcn\\u00efcode wind limits"}'),
        )
        body = r.server.requests[0].body
        assert body["tools"][0]["function"]["name"] == "search"
        assert (body["tool_choice"], body["parallel_tool_calls"]) == ("auto", False)


@both_ways
async def test_malformed_tool_arguments_are_handed_on_as_they_are(stream: bool) -> None:
    async with rig([Reply(calls=(Call("search", '{"query": "wi'),))]) as r:
        completion = await outcome(r.llm, replace(asking(), tools=(SEARCH,)), stream=stream)
        assert completion.tool_calls[0].arguments == '{"query": "wi'


async def test_the_dialogue_of_a_tool_loop_reaches_the_server() -> None:
    call = ToolCall("c1", "search", '{"query": "wind"}')
    messages = (
        Message("user", PromptText("Wind?")),
        Message("assistant", PromptText(""), tool_calls=(call,)),
        Message("tool", PromptText("Forty knots."), tool_call_id="c1"),
    )
    async with rig([Reply("Forty.")]) as r:
        await r.llm.complete(LlmRequest(Purpose.CONTROL, messages, tools=(SEARCH,), tool_choice="required"))
        assert r.server.requests[0].messages[1:] == [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"query": "wind"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "Forty knots."},
        ]
        assert r.server.requests[0].body["tool_choice"] == "required"


async def test_tool_choice_none_takes_the_tools_away() -> None:
    async with rig([Reply("Forty.")]) as r:
        await r.llm.complete(replace(asking(), tools=(SEARCH,), tool_choice="none"))
        assert "tools" not in r.server.requests[0].body


@both_ways
async def test_thoughts_are_kept_out_of_the_text(stream: bool) -> None:
    script = [Reply("<think>The user wants wind.</think>\n\nForty knots."), Reply("Forty.", reasoning="Hm, wind.")]
    async with rig(script) as r:
        assert (await outcome(r.llm, asking(), stream=stream)).text == "Forty knots."
        assert (await outcome(r.llm, asking(), stream=stream)).text == "Forty."


@both_ways
async def test_a_refusal_of_the_model_is_a_content_filter(stream: bool) -> None:
    async with rig([Reply(refusal="I cannot help with that.")]) as r:
        completion = await outcome(r.llm, asking(), stream=stream)
        assert (completion.text, completion.finish_reason) == ("I cannot help with that.", "content_filter")


@both_ways
async def test_an_output_cut_by_the_limit_says_so(stream: bool) -> None:
    async with rig([Reply("Forty", finish_reason="length")]) as r:
        assert (await outcome(r.llm, asking(), stream=stream)).finish_reason == "length"


async def test_a_model_that_ignores_the_output_limit_is_stopped() -> None:
    async with rig([repeating_itself("again and again ", 5000)]) as r:
        _, completion = await streamed(r.llm, asking(max_tokens=10))
        assert completion.finish_reason == "length"
        assert len(completion.text) < 400


# --- what the server lacks --------------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize(
    ("lacks", "request_", "missing"),
    [
        (("tools",), replace(asking(), tools=(SEARCH,)), {Feature.TOOLS}),
        (("parallel_tool_calls",), replace(asking(), tools=(SEARCH,)), {Feature.PARALLEL_TOOL_CALLS}),
        (
            ("tool_choice_required",),
            replace(asking(), tools=(SEARCH,), tool_choice="required"),
            {Feature.TOOL_CHOICE_REQUIRED},
        ),
        (("json_schema",), replace(asking(), json_schema=SCHEMA), {Feature.JSON_SCHEMA}),
        (
            ("json_schema", "json_object"),
            replace(asking(), json_schema=SCHEMA),
            {Feature.JSON_SCHEMA, Feature.JSON_OBJECT},
        ),
        (("temperature",), asking(), {Feature.TEMPERATURE}),
        (("max_tokens",), asking(), {Feature.MAX_TOKENS}),
        (
            ("tools", "max_tokens", "temperature", "parallel_tool_calls"),
            replace(asking(), tools=(SEARCH,)),
            {Feature.TOOLS, Feature.MAX_TOKENS, Feature.TEMPERATURE, Feature.PARALLEL_TOOL_CALLS},
        ),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
async def test_what_the_server_refuses_is_left_out_and_remembered(
    lacks: tuple[str, ...], request_: LlmRequest, missing: set[Feature], stream: bool
) -> None:
    async with rig(always(Reply("Forty.")), lacks=lacks) as r:
        assert (await outcome(r.llm, request_, stream=stream)).text == "Forty."
        assert len(r.server.requests) == len(missing) + 1
        assert r.llm.missing_features("scripted") == missing
        assert (await outcome(r.llm, request_, stream=stream)).text == "Forty."
        assert len(r.server.requests) == len(missing) + 2, "the second call knew from the start"
        assert r.observer.failed == []


async def test_json_mode_stands_in_for_schemas_and_max_completion_tokens_for_max_tokens() -> None:
    async with rig(always(Reply("{}")), lacks=("json_schema", "max_tokens")) as r:
        await r.llm.complete(replace(asking(), json_schema=SCHEMA))
        body = r.server.requests[-1].body
        assert body["response_format"] == {"type": "json_object"}
        assert body["max_completion_tokens"] == 200
        assert r.server.requests[0].body["response_format"]["json_schema"]["strict"] is True


async def test_streams_do_without_usage_where_it_is_refused() -> None:
    async with rig(always(Reply("Forty.")), lacks=("stream_options",)) as r:
        _, completion = await streamed(r.llm, asking())
        assert completion.text == "Forty."
        assert completion.estimated
        assert r.llm.missing_features("scripted") == {Feature.STREAM_USAGE}


async def test_without_tools_the_dialogue_is_told_in_plain_messages() -> None:
    messages = (
        Message("user", PromptText("Wind?")),
        Message("assistant", PromptText(""), tool_calls=(ToolCall("c1", "search", "{}"),)),
        Message("tool", PromptText("Forty knots."), tool_call_id="c1"),
    )
    async with rig(always(Reply("Forty.")), lacks=("tools",)) as r:
        await r.llm.complete(LlmRequest(Purpose.CONTROL, messages, tools=(SEARCH,)))
        assert [m["role"] for m in r.server.requests[-1].messages] == ["user", "assistant", "user"]
        assert r.server.requests[-1].messages[1]["content"] == "search({})"


@both_ways
async def test_a_refusal_that_names_no_feature_is_final(stream: bool) -> None:
    async with rig(always(Failure(400, "This model's maximum context length is 4096 tokens."))) as r:
        error = await failed(r.llm, asking(), stream=stream)
        assert error.kind == "refused"
        assert "maximum context length" in error.message
        assert len(r.server.requests) == 1


async def test_a_feature_blamed_in_vain_is_not_remembered() -> None:
    async with rig(always(Failure(400, "max_tokens is too large: 200."))) as r:
        assert (await failed(r.llm, asking(), stream=False)).kind == "refused"
        assert r.llm.missing_features("scripted") == frozenset()


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


# --- time -------------------------------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("hang", [Hang(), Hang(headers=True)], ids=["silent", "headers"])
async def test_a_server_that_hangs_is_a_timeout_at_the_deadline(hang: Hang, stream: bool) -> None:
    async with rig(always(hang)) as r:
        loop = asyncio.get_running_loop()
        started = loop.time()
        error = await failed(r.llm, asking(timeout_seconds=0.3), stream=stream)
        assert error.kind == "timeout"
        assert 0.25 < loop.time() - started < 1
        await until_gone(r.server.requests[0])


@pytest.mark.parametrize("late", [Hang(), Hang(headers=True), Reply("Forty.", first_token_delay=10)])
async def test_the_first_token_has_its_own_limit(late: Hang | Reply) -> None:
    async with rig(always(late), first_token_seconds=0.2) as r:
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert (await failed(r.llm, asking(timeout_seconds=30), stream=True)).kind == "timeout"
        assert loop.time() - started < 1


@pytest.mark.parametrize("ping", [0, 0.05], ids=["silent", "pinging"])
async def test_a_stream_that_stalls_is_cut(ping: float) -> None:
    stalling = Reply(pieces=("Forty", " knots", "."), stall_after=2, ping=ping)
    async with rig([stalling], idle_seconds=0.2, first_token_seconds=5) as r:
        loop = asyncio.get_running_loop()
        started = loop.time()
        pieces, completion = await streamed(r.llm, asking(timeout_seconds=30))
        assert loop.time() - started < 1
        assert "".join(pieces) == "Forty knots"
        assert completion.finish_reason == "cut"
        assert r.observer.failed == ["timeout"]
        await until_gone(r.server.requests[0])


async def test_a_slow_but_steady_stream_is_not_cut() -> None:
    async with rig([Reply(pieces=("a", "b", "c", "d"), token_delay=0.15)], idle_seconds=0.4) as r:
        assert (await streamed(r.llm, asking()))[1].text == "abcd"


async def test_the_deadline_ends_a_long_stream_with_what_there_is() -> None:
    async with rig([Reply(pieces=tuple("abcdefghij" * 10), token_delay=0.05)]) as r:
        _, completion = await streamed(r.llm, asking(timeout_seconds=0.4))
        assert completion.finish_reason == "cut"
        assert completion.text.startswith("abc")


async def test_a_slow_reader_is_not_taken_for_a_stalled_server() -> None:
    async with rig([Reply(pieces=("a", "b", "c"))], idle_seconds=0.1) as r:
        pieces = []
        async for item in r.llm.stream(asking()):
            pieces.append(item)
            await asyncio.sleep(0.2)
        assert pieces[:3] == ["a", "b", "c"]


# --- cancellation -----------------------------------------------------------------------------------------------------


async def until_gone(request: Recorded, within_seconds: float = 0.5) -> float:
    async with asyncio.timeout(within_seconds):
        while request.client_gone is None:  # noqa: ASYNC110 - the server notes a time, it has no event to wait for
            await asyncio.sleep(0.002)
    return request.client_gone


@both_ways
@pytest.mark.parametrize(
    "behaviour",
    [Hang(), Hang(headers=True), Reply(pieces=("a",) * 1000, token_delay=0.05), Failure(503, retry_after=3)],
    ids=["silent", "headers", "streaming", "backing off"],
)
async def test_cancelling_a_call_closes_its_socket_within_100_ms(behaviour: Behaviour, stream: bool) -> None:
    async with rig(always(behaviour)) as r:
        task = asyncio.create_task(outcome(r.llm, asking(timeout_seconds=30), stream=stream))
        request = await r.server.arrived(1)
        await asyncio.sleep(0.15)
        cancelled = asyncio.get_running_loop().time()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.get_running_loop().time() - cancelled < 0.1
        if not isinstance(behaviour, Failure):
            assert await until_gone(request) - cancelled < 0.1
        await asyncio.sleep(0.05)
        assert len(r.server.requests) == 1
        assert r.observer.calls[0].error_kind == "cancelled"


async def test_a_stream_that_is_left_early_closes_its_socket_and_its_place() -> None:
    async with rig(always(Reply(pieces=("a",) * 1000, token_delay=0.02)), max_concurrency=1, max_waiting=0) as r:
        for number in range(2):
            async with contextlib.aclosing(r.llm.stream(asking())) as stream:
                async for _ in stream:
                    break
            left = asyncio.get_running_loop().time()
            assert await until_gone(r.server.requests[number]) - left < 0.1
        assert [call.error_kind for call in r.observer.calls] == ["cancelled"] * 2
        assert all(call.usage.input_tokens > 0 for call in r.observer.calls), "what was read is still paid for"


# --- bounds -----------------------------------------------------------------------------------------------------------


async def test_no_more_calls_run_at_once_than_allowed_and_no_more_wait() -> None:
    running = 0
    most = 0

    async def slowly(request: Recorded) -> Reply:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.2)
        running -= 1
        return Reply("Forty.")

    async with rig(slowly, max_concurrency=2, max_waiting=3) as r:
        results = await asyncio.gather(*(r.llm.complete(asking()) for _ in range(7)), return_exceptions=True)
        refused = [result for result in results if isinstance(result, BaseException)]
        assert len(refused) == 2
        assert all(isinstance(error, Overloaded) and isinstance(error, LlmUnavailable) for error in refused)
        assert all(isinstance(error, Overloaded) and error.grpc_code == "RESOURCE_EXHAUSTED" for error in refused)
        assert most == 2
        assert (await r.llm.complete(asking())).text == "Forty."


async def test_waiting_for_a_place_counts_as_time() -> None:
    async with rig(always(Hang()), max_concurrency=1) as r:
        first = asyncio.create_task(failed(r.llm, asking(timeout_seconds=0.6), stream=False))
        await r.server.arrived(1)
        error = await failed(r.llm, asking(timeout_seconds=0.2), stream=True)
        assert error.kind == "timeout"
        assert len(r.server.requests) == 1
        await first


async def test_fifty_streams_at_once_do_not_mix() -> None:
    def echo(request: Recorded) -> Reply:
        return Reply(request.messages[-1]["content"], token_delay=0.001)

    async with rig(echo) as r:
        texts = [f"answer number {number} of many" for number in range(50)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(streamed(r.llm, asking(text))) for text in texts]
        assert [task.result()[1].text for task in tasks] == texts


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
