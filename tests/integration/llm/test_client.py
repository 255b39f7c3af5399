"""The client and a server that answers well, or lacks features."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from standard.llm.capabilities import Feature
from standard.llm.config import Price
from standard.llm.protocol import LlmRequest, Message, Purpose, Tool, ToolCall
from standard.sandbox.prompt import PromptText
from tests.support.llm_rig import asking, both_ways, failed, outcome, rig, streamed
from tests.support.model_server import (
    Call,
    Failure,
    Reply,
    always,
    repeating_itself,
)

SEARCH = Tool("search", "Search the corpus.", {"type": "object", "properties": {"query": {"type": "string"}}})
SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "number"}},
    "required": ["score"],
    "additionalProperties": False,
}
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
