"""Requests as bodies, and responses of any shape as completions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standard.llm.capabilities import Capabilities, Feature, blamed_feature
from standard.llm.protocol import LlmRequest, Message, Purpose, Tool
from standard.llm.reasoning import ReasoningFilter
from standard.llm.wire import Assembler, Malformed, estimate_input, features_of, in_effect, request_body
from standard.sandbox.prompt import PromptText

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices", "message", "delta", "content", "tool_calls", "function", "name", "arguments", "index",
                    "id", "usage", "prompt_tokens", "completion_tokens", "prompt_tokens_details", "cached_tokens",
                    "finish_reason", "refusal", "reasoning_content", "type", "text",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)  # fmt: skip

ASKING = LlmRequest(Purpose.ANSWER, (Message("user", PromptText("Wind?")),))
TOOL = Tool("search", "Search.", {"type": "object"})


def delta(**fields: object) -> dict[str, object]:
    return {"choices": [{"delta": fields, "finish_reason": None}]}


@given(JSON)
def test_no_json_value_does_worse_than_malformed(value: object) -> None:
    for read in (Assembler.read_body, Assembler.read_chunk):
        assembler = Assembler()
        try:
            read(assembler, value)
        except Malformed:
            continue
        assert isinstance(assembler.text, str)
        assert all(call.name for call in assembler.tool_calls)
        assert assembler.estimated_output() >= 0
        if assembler.usage is not None:
            assert 0 <= assembler.usage.cached_tokens <= assembler.usage.input_tokens


@given(st.lists(JSON, max_size=4), JSON)
def test_choices_of_any_shape_are_read_or_skipped(chunks: list[object], message: object) -> None:
    assembler = Assembler()
    for chunk in chunks:
        assembler.read_chunk({"choices": [{"delta": chunk}]})
    assembler.read_chunk({"choices": [{"delta": message, "finish_reason": message}], "usage": message})
    assembler.finish()


def test_parallel_calls_of_a_stream_are_kept_apart_by_index() -> None:
    assembler = Assembler()
    for index, name in enumerate(("search", "read")):
        assembler.read_chunk(delta(tool_calls=[{"index": index, "id": f"c{index}", "function": {"name": name}}]))
    assembler.read_chunk(delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a":'}}]))
    assembler.read_chunk(delta(tool_calls=[{"index": 1, "function": {"arguments": "{}"}}]))
    assembler.read_chunk(delta(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}]))
    assert [(call.name, call.arguments) for call in assembler.tool_calls] == [("search", '{"a":1}'), ("read", "{}")]


def test_calls_that_all_bear_index_zero_are_kept_apart_by_id() -> None:
    assembler = Assembler()
    for identity in ("x", "y"):
        function = {"name": "search", "arguments": json.dumps({"q": identity})}
        assembler.read_chunk(delta(tool_calls=[{"index": 0, "id": identity, "function": function}]))
    assert [call.arguments for call in assembler.tool_calls] == ['{"q": "x"}', '{"q": "y"}']


def test_calls_without_ids_or_with_object_arguments_are_completed() -> None:
    assembler = Assembler()
    call = {"function": {"name": "search", "arguments": {"q": "wind"}}}
    assembler.read_body({"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "stop"}]})
    assert assembler.tool_calls[0].id == "call_0"
    assert json.loads(assembler.tool_calls[0].arguments) == {"q": "wind"}


def test_a_flood_of_calls_is_bounded() -> None:
    assembler = Assembler()
    calls = [{"id": str(number), "function": {"name": "search"}} for number in range(500)]
    assembler.read_chunk(delta(tool_calls=calls))
    assert len(assembler.tool_calls) <= 32


def test_content_in_parts_is_read_without_the_thoughts_among_them() -> None:
    assembler = Assembler()
    parts = [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "Forty."}, {"type": "image_url"}]
    assembler.read_body({"choices": [{"message": {"content": parts}}]})
    assert assembler.text == "Forty."


@given(
    st.sampled_from(
        [
            "<think>a < b\n</think>\n\nForty.",
            "  <think></think>Forty.",
            "Forty <think> x",
            "<thi",
            "<think>o",
            "",
            "  x",
        ]
    ),
    st.data(),
)
def test_thoughts_are_filtered_the_same_however_the_text_is_split(text: str, data: st.DataObject) -> None:
    def filtered(pieces: list[str]) -> str:
        part = ReasoningFilter()
        return "".join(part.feed(piece) for piece in pieces) + part.finish()

    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert filtered(pieces) == filtered([text])


def test_what_the_filter_shows() -> None:
    shown = {
        "<think>wind</think>\n\nForty.": "Forty.",
        "No <think> here": "No <think> here",
        "<think>never closed": "",
        "<thi": "<thi",
    }
    for text, expected in shown.items():
        part = ReasoningFilter()
        assert part.feed(text) + part.finish() == expected


def test_schema_mode_is_strict_only_for_schemas_that_strict_mode_accepts() -> None:
    closed = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    open_ = {**closed, "required": []}
    nested = {**closed, "properties": {"a": {"type": "array", "items": open_}}}
    for schema, strict in ((closed, True), (open_, False), (nested, False)):
        request = replace(ASKING, json_schema=schema)
        body = request_body(request, "m", features_of(request, stream=False), stream=False)
        response_format = body["response_format"]
        assert isinstance(response_format, dict)
        assert response_format["json_schema"]["strict"] is strict


def test_only_features_in_effect_can_be_blamed() -> None:
    request = replace(ASKING, tools=(TOOL,), tool_choice="required", json_schema={"type": "object"})
    features = features_of(request, stream=True)
    assert Feature.JSON_OBJECT not in in_effect(features)
    without_tools = in_effect(features - {Feature.TOOLS, Feature.JSON_SCHEMA})
    assert without_tools == {Feature.JSON_OBJECT, Feature.STREAM_USAGE, Feature.TEMPERATURE, Feature.MAX_TOKENS}


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools", Feature.TOOLS),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser', Feature.TOOLS),
        (404, "No endpoints found that support tool use.", Feature.TOOLS),
        (500, "tools param requires --jinja flag", Feature.TOOLS),
        (500, "internal error in tool runner", None),
        (400, "Unrecognized request argument supplied: parallel_tool_calls", Feature.PARALLEL_TOOL_CALLS),
        (422, "extra_forbidden body.stream_options.include_usage", Feature.STREAM_USAGE),
        (400, "'response_format' of type 'json_schema' is not supported", Feature.JSON_SCHEMA),
        (400, "Unsupported value: 'temperature'", Feature.TEMPERATURE),
        (400, "maximum context length is 4096 tokens", None),
        (401, "tools", None),
        (None, "tools", None),
    ],
)
def test_real_refusals_name_their_feature(status: int | None, message: str, expected: Feature | None) -> None:
    used = set(Feature) - {Feature.TOOL_CHOICE_REQUIRED, Feature.JSON_OBJECT}
    assert blamed_feature(status, message, used) is expected


def test_what_was_learned_is_forgotten_after_a_while() -> None:
    now = [0.0]
    capabilities = Capabilities(lambda: now[0], memory_seconds=10)
    capabilities.learn("m", {Feature.TOOLS})
    assert capabilities.missing("m") == {Feature.TOOLS}
    assert capabilities.missing("other") == frozenset()
    now[0] = 10.0
    assert capabilities.missing("m") == frozenset()


def test_tools_and_schemas_count_as_input() -> None:
    plain = estimate_input(ASKING)
    assert estimate_input(replace(ASKING, tools=(TOOL,))) > plain
    assert estimate_input(replace(ASKING, json_schema={"type": "object"})) > plain
