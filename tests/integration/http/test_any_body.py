"""Whatever a body holds, the reply is never a 500, always JSON in the façade's shape, and never late."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from router.http.contract.paths import Sources, look_up, parse_path
from router.http.contract.template import Values, compile_json, names_used, render
from router.http.errors import to_problem
from router.http.filters import to_filter_message
from router.http.openai_chat import read_messages
from router.http.wire import header_value, sse_text
from router.replay.recorded import Response, to_exchange
from router.replay.structure import Learnt, Rules, Shape, compare, parse
from standard.domain.errors import PointsmanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.http.conftest import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
words = st.sampled_from(
    ["pointsman", "user", "assistant", "system", "text", "eq", "and", "in", "kind", "Where is the pump?"]
)
values = words | json_values
chat_messages = st.lists(
    st.fixed_dictionaries({"role": words}, optional={"content": values, "name": values}) | json_values, max_size=3
)
chats = st.fixed_dictionaries(
    {},
    optional={
        "model": st.just("pointsman") | values,
        "messages": chat_messages | values,
        "stream": st.booleans() | values,
        "stream_options": st.fixed_dictionaries({}, optional={"include_usage": values}) | values,
        "n": values,
        "tools": values,
        "response_format": values,
        "pointsman": st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(
                ("collection", "top_k", "filter", "threshold", "budget", "session_id", "steps"), values
            ),
        )
        | values,
    },
)
filters = st.dictionaries(words | st.text(max_size=4), values, max_size=3) | json_values
queries = st.fixed_dictionaries(
    {"question": words},
    optional={
        "history": st.lists(st.fixed_dictionaries({"role": words, "text": values}), max_size=2) | values,
        "route": words | values,
        "threshold": values,
        "collection": values,
        "filter": filters,
        "top_k": values,
        "budget": st.dictionaries(st.sampled_from(["max_steps", "max_tokens", "max_seconds"]), values) | values,
        "session_id": values,
        "dry_run": st.booleans() | values,
    },
)
searches = st.fixed_dictionaries(
    {"query": st.lists(values, max_size=3) | values},
    optional={"max_num_results": values, "filters": filters, "ranking_options": values},
)
few = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


async def check(served: Served, path: str, body: object) -> None:
    raw = json.dumps(body).encode()
    async with asyncio.timeout(20):
        response = await served.client.post(path, content=raw, headers={"content-type": "application/json"})
    assert response.status_code < 500, response.text
    if response.headers["content-type"] == "application/json":
        told = response.json()
        assert (response.status_code < 400) is ("error" not in told)
        if response.status_code >= 400:
            assert told["error"]["message"]


@few
@given(body=chats)
@example(body={"model": "pointsman", "messages": [{"role": "user", "content": "x" * 9000}]})
@example(body={"model": "pointsman", "messages": [{"role": "user", "content": "?"}], "n": 1e300})
@example(body={"model": "pointsman", "messages": [{"role": "user", "content": "pump"}], "pointsman": {"top_k": 2**40}})
async def test_chat_completions(served: Served, body: dict[str, Any]) -> None:
    await check(served, "/v1/chat/completions", body)


@few
@given(body=queries)
@example(body={"question": "pump", "filter": {"a": {"gte": 1, "lte": "x"}}})
@example(body={"question": "pump", "filter": {"a": 10**400}})
@example(body={"question": "pump", "budget": {"max_steps": -1}})
@example(body={"question": "pump", "filter": {"type": "and", "filters": [{"type": "or", "filters": []}]}})
async def test_query(served: Served, body: dict[str, Any]) -> None:
    await check(served, "/query", body)


@few
@given(body=searches)
async def test_vector_store_search(served: Served, body: dict[str, Any]) -> None:
    await check(served, "/v1/vector_stores/default/search", body)


@settings(deadline=None)
@given(body=st.binary(max_size=200))
async def test_bytes_that_are_nothing(served: Served, body: bytes) -> None:
    response = await served.client.post("/query", content=body, headers={"content-type": "application/json"})
    assert response.status_code < 500


def status_of(read: Callable[[], object]) -> int:
    """The HTTP status that reading ends in; what is not of our tree is raised."""
    try:
        read()
    except PointsmanError as error:
        return to_problem(error).status
    return 200


@given(value=filters)
async def test_a_filter_is_read_or_refused(value: object) -> None:
    assert status_of(lambda: to_filter_message(value, "filter")) in {200, 400}


@given(value=chat_messages)
async def test_messages_are_read_or_refused(value: object) -> None:
    assert status_of(lambda: read_messages(value)) in {200, 400}


@given(text=st.text(alphabet='ab.[]=-1@{}|!: "'))
async def test_a_path_is_parsed_and_followed_or_refused(text: str) -> None:
    try:
        path = parse_path(text)
    except ValueError:
        return
    look_up(path, Sources({"a": [{"b": "a"}, 1]}, {}, {}, {}))
    assert path.text == text


@given(value=json_values, text=st.text(alphabet="{}|!:answer$each"))
async def test_a_template_is_compiled_and_rendered_or_refused(value: object, text: str) -> None:
    try:
        template = compile_json(json.dumps({"x": value, "y": text}), frozenset({"answer"}), {})
    except ValueError:
        return
    given_values = Values({"answer": "yes"}, {}, Sources({}, {}, {}, {}))
    json.dumps(render(template, given_values))
    names_used(template)


@given(text=st.text())
async def test_no_text_breaks_out_of_a_header_or_an_event(text: str) -> None:
    assert not set(header_value(text)) & set(b"\r\n\x00")
    frame = sse_text(text, event="data").decode()
    assert frame.endswith("\n\n")
    assert all(line.startswith(("data: ", "event: ")) for line in frame.removesuffix("\n\n").split("\n"))


@given(value=json_values)
async def test_what_was_learnt_from_a_value_does_not_differ_from_it(value: object) -> None:
    shape = Shape()
    shape.learn(value)
    assert compare(shape, value, Rules()) == []


@given(text=st.text(), media=st.sampled_from(["text/event-stream", "application/x-ndjson", "application/json", "x/y"]))
async def test_any_response_can_be_taken_apart_and_equals_itself(text: str, media: str) -> None:
    response = Response(200, media, text)
    parsed = parse(response)
    if not parsed.broken:
        learnt = Learnt()
        learnt.learn(response, parsed)
        assert learnt.differences(response, response, Rules()) == []


@given(row=st.dictionaries(st.sampled_from(["request", "response"]), json_values))
async def test_any_line_is_an_exchange_or_refused(row: dict[str, Any]) -> None:
    assert status_of(lambda: to_exchange({"id": "1", **row})) in {200, 400}
