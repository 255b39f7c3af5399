"""The real openai client, unmodified, against the real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, OpenAI

from tests.integration.http.conftest import WHERE, serving, settings_for
from tests.support.model_server import Failure, ModelServer, Reply, always
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from openai.types.chat import ChatCompletionMessageParam

    from tests.integration.http.conftest import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED: list[ChatCompletionMessageParam] = [{"role": "user", "content": WHERE}]


@pytest_asyncio.fixture(loop_scope="module")
async def client(served: Served) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0) as opened:
        yield opened


async def test_a_completion_has_an_answer_citations_and_usage(client: AsyncOpenAI) -> None:
    done = await client.chat.completions.create(model="pointsman-standard", messages=ASKED)
    message = done.choices[0].message
    assert message.content is not None
    assert "shed at Alder Wharf" in message.content
    assert done.object == "chat.completion"
    assert done.model == "pointsman-standard"
    assert done.choices[0].finish_reason == "stop"
    assert done.usage is not None
    assert done.usage.total_tokens == 0  # nobody was paid: the answer is made of the passages
    assert message.annotations
    cited = message.annotations[0].url_citation
    assert cited.url == "kb/pump.md"
    assert cited.title == "Spare pump"
    assert "bilge pump" in message.content[cited.start_index : cited.end_index]


async def test_a_stream_is_the_completion_in_pieces(client: AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model="pointsman", messages=ASKED)
    stream = await client.chat.completions.create(
        model="pointsman", messages=ASKED, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert all(chunk.usage is None for chunk in chunks[:-1])
    annotations: list[Any] = [
        item for chunk in chunks if chunk.choices for item in getattr(chunk.choices[0].delta, "annotations", None) or ()
    ]
    assert annotations == [item.model_dump() for item in whole.choices[0].message.annotations or ()]


async def test_without_include_usage_no_chunk_has_usage(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model="pointsman", messages=ASKED, stream=True)
    chunks = [chunk async for chunk in stream]
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


async def test_steps_come_as_reasoning_where_the_client_asks(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="pointsman-agentic", messages=ASKED, stream=True, extra_headers={"X-Pointsman-Steps": "true"}
    )
    lines = [getattr(chunk.choices[0].delta, "reasoning_content", None) async for chunk in stream]
    assert any("agentic route" in line for line in lines if line)
    whole = await client.chat.completions.create(
        model="pointsman-agentic", messages=ASKED, extra_body={"pointsman": {"steps": True}}
    )
    assert "agentic route" in getattr(whole.choices[0].message, "reasoning_content", "")


async def test_the_helper_for_streams_accumulates_the_same_answer(client: AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model="pointsman", messages=ASKED) as stream:
        final = await stream.get_final_completion()
    assert "shed at Alder Wharf" in (final.choices[0].message.content or "")


async def test_a_model_name_forces_its_route(client: AsyncOpenAI) -> None:
    for model, route in (("pointsman-standard", "standard"), ("pointsman-agentic", "agentic")):
        done = await client.chat.completions.create(model=model, messages=ASKED)
        told: Any = getattr(done, "pointsman", None)
        assert told["route"] == route
        assert told["decision"]["reason"] == "forced"


async def test_history_makes_a_follow_up_findable_and_system_messages_are_told_of(client: AsyncOpenAI) -> None:
    done = await client.chat.completions.create(
        model="pointsman-standard",
        messages=[
            {"role": "system", "content": "Speak like a pirate."},
            {"role": "user", "content": "Where is the spare bilge pump?"},
            {"role": "assistant", "content": "In the shed at Alder Wharf."},
            {"role": "user", "content": [{"type": "text", "text": "Who signs for it?"}]},
        ],
    )
    assert [item.url_citation.title for item in done.choices[0].message.annotations or ()] == ["Spare pump"]
    told: Any = getattr(done, "pointsman", None)
    assert any("system messages" in notice for notice in told["notices"])


async def test_a_real_model_is_paid_for_and_cited(database_url: str, tmp_path: Path) -> None:
    async with ModelServer(always(Reply("It is in the shed at Alder Wharf [S1]."))) as model:
        settings = settings_for(database_url, tmp_path, llm={"base_url": model.base_url, "model": "m"})
        async with (
            serving(settings) as served,
            AsyncOpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0) as client,
        ):
            done = await client.chat.completions.create(model="pointsman-standard", messages=ASKED)
            assert done.choices[0].message.content == "It is in the shed at Alder Wharf."
            assert done.usage is not None
            assert done.usage.prompt_tokens > 0
            assert done.usage.completion_tokens > 0
            assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens


async def test_the_models_are_listed_and_others_not_found(client: AsyncOpenAI) -> None:
    names = [model.id async for model in client.models.list()]
    assert names == ["pointsman", "pointsman-standard", "pointsman-agentic"]
    assert (await client.models.retrieve("pointsman")).owned_by == "pointsman"
    with pytest.raises(openai.NotFoundError) as caught:
        await client.chat.completions.create(model="gpt-4o", messages=ASKED)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("org/another-one")


async def test_vector_stores_are_collections(client: AsyncOpenAI) -> None:
    page = await client.vector_stores.search("default", query=WHERE, max_num_results=2)
    assert page.data[0].file_id == "pump"
    assert len(page.data) == 2
    assert page.data[0].content[0].text.startswith("The spare bilge pump")
    assert page.data[0].attributes == {"kind": "note"}
    none = await client.vector_stores.search(
        "default", query=[WHERE, "lantern"], filters={"type": "eq", "key": "kind", "value": "memo"}
    )
    assert none.data == []
    with pytest.raises(openai.NotFoundError):
        await client.vector_stores.search("nothing-here", query=WHERE)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        ({"n": 2}, "n"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"extra_body": {"pointsman": {"top_k": 1000}}}, "top_k"),
        ({"extra_body": {"pointsman": {"colection": "x"}}}, "pointsman.colection"),
    ],
)
async def test_what_cannot_be_done_is_refused_by_its_name(
    client: AsyncOpenAI, body: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(**({"model": "pointsman", "messages": ASKED} | body))
    assert caught.value.param == param


async def test_a_run_is_named_and_answered_once(client: AsyncOpenAI) -> None:
    named = {"Idempotency-Key": "one-question", "X-Request-Id": "abc-1"}
    first = await client.chat.completions.with_raw_response.create(
        model="pointsman", messages=ASKED, extra_headers=named
    )
    assert first.headers["x-request-id"] == "abc-1"
    assert first.headers["x-pointsman-run"] == "one-question"
    assert first.parse().id == "chatcmpl-one-question"
    again = await client.chat.completions.create(model="pointsman", messages=ASKED, extra_headers=named)
    assert again.choices == first.parse().choices
    with pytest.raises(openai.ConflictError):
        await client.chat.completions.create(
            model="pointsman", messages=[{"role": "user", "content": "When is the lantern lit?"}], extra_headers=named
        )


async def test_the_client_that_blocks_works_as_well(served: Served) -> None:
    def ask() -> str:
        with OpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0) as client:
            stream = client.chat.completions.create(model="pointsman", messages=ASKED, stream=True)
            return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    assert "shed at Alder Wharf" in await asyncio.to_thread(ask)


async def test_an_overloaded_gateway_says_when_to_come_back(database_url: str, tmp_path: Path) -> None:
    async with ModelServer(always(Reply("Yes [S1].", delay=2.0))) as model:
        settings = settings_for(
            database_url,
            tmp_path,
            llm={"base_url": model.base_url, "model": "m"},
            server={"max_inflight": 1, "max_queued": 0},
        )
        async with (
            serving(settings) as served,
            AsyncOpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0) as client,
        ):
            first = asyncio.create_task(client.chat.completions.create(model="pointsman-standard", messages=ASKED))
            await until(lambda: model.requests)
            with pytest.raises(openai.RateLimitError) as caught:
                await client.chat.completions.create(model="pointsman", messages=ASKED)
            assert caught.value.code == "rate_limit_exceeded"
            assert int(caught.value.response.headers["retry-after"]) >= 1
            assert int(caught.value.response.headers["retry-after-ms"]) >= 1
            await first


async def test_a_failing_model_is_told_in_a_notice(database_url: str, tmp_path: Path) -> None:
    async with ModelServer(always(Failure(500))) as model:
        settings = settings_for(database_url, tmp_path, llm={"base_url": model.base_url, "model": "m", "retries": 0})
        async with (
            serving(settings) as served,
            AsyncOpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0) as client,
        ):
            done = await client.chat.completions.create(model="pointsman-standard", messages=ASKED)
            told: Any = getattr(done, "pointsman", None)
            assert told["answer_source"] == "extractive"
            assert told["notices"]
