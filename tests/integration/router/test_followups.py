"""Follow-ups over gRPC and HTTP: settled once, before they are classified, and the same for everything after."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx2
import pytest
from pointsman.client import new_request_id, question
from pointsman.v1 import gateway_pb2

from router.followup import understood
from router.process.serving import open_http_beside
from standard.domain.question import Budget, Question, Turn
from standard.domain.text import UntrustedText
from standard.llm.config import Price
from standard.sandbox.guarded_llm import GuardedLlm
from tests.integration.router.conftest import Running, fill, running, settings_for
from tests.integration.router.test_resume import ENOUGH
from tests.support.llm_rig import rig
from tests.support.model_server import Failure, ModelServer, Recorded, Reply

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_server.behaviour import Behaviour

FIRST = "Where is the spare bilge pump kept?"
FOLLOW_UP = "And who signs for it?"
ALONE = "Who signs for the spare bilge pump of Alder Wharf?"
ROUTES = [gateway_pb2.ROUTE_STANDARD, gateway_pb2.ROUTE_AGENTIC]


def condensing(request: Recorded) -> bool:
    return "You rewrite the last question" in request.text("system")


def script(condensed: Behaviour) -> object:
    def answer(request: Recorded) -> Behaviour:
        if condensing(request):
            return condensed
        return Reply("The dockmaster signs for it [S1].") if request.streamed else ENOUGH

    return answer


def asked(
    route: gateway_pb2.Route.ValueType = gateway_pb2.ROUTE_UNSPECIFIED,
) -> gateway_pb2.AnswerRequest:
    request = question(FOLLOW_UP, route=route)
    request.history.add(role="user", text=FIRST)
    request.history.add(role="assistant", text="In the shed at Alder Wharf.")
    return request


def queries(events: list[gateway_pb2.Event]) -> list[str]:
    return [event.query.query for event in events if event.HasField("query")]


@pytest.mark.parametrize("route", ROUTES)
async def test_a_follow_up_is_condensed_by_one_call_and_everything_after_works_with_that(
    database_url: str, tmp_path: Path, route: gateway_pb2.Route.ValueType
) -> None:
    async with ModelServer(script(Reply(f"  {ALONE}\n"))) as model:  # type: ignore[arg-type]
        llm = {"base_url": model.base_url, "model": "m", "retries": 0}
        async with running(settings_for(database_url, tmp_path, llm=llm)) as served:
            await fill(served.client)
            read: list[str] = []
            models = served.application.models.current()
            assert models is not None
            encode = models.encode

            async def noted(text: str):  # type: ignore[no-untyped-def] # noqa: ANN202
                read.append(text)
                return await encode(text)

            object.__setattr__(models, "encode", noted)
            events = [event async for event in served.client.stream(asked(route))]
            answer = events[-1].completed
            assert [condensing(each) for each in model.requests].count(True) == 1
            assert condensing(model.requests[0]), "before anything else is asked"
            assert FIRST in model.requests[0].text("user")
            assert read == [ALONE], "what is classified"
            assert answer.answer == "The dockmaster signs for it."
            assert answer.usage.llm_calls == len(model.requests)
            if route == gateway_pb2.ROUTE_AGENTIC:
                assert queries(events)[0] == ALONE, "what is searched"
                judged = next(each for each in model.requests if not condensing(each) and not each.streamed)
                assert ALONE in judged.text("user"), "what the controller works with"


@pytest.mark.parametrize(
    "condensed", [Failure(500), Reply(""), Reply("x" * 2000), Reply("cut", finish_reason="length")]
)
async def test_a_rule_decides_where_the_model_gives_nothing_of_use(
    database_url: str, tmp_path: Path, condensed: Behaviour
) -> None:
    async with ModelServer(script(condensed)) as model:  # type: ignore[arg-type]
        llm = {"base_url": model.base_url, "model": "m", "retries": 0}
        async with running(settings_for(database_url, tmp_path, llm=llm)) as served:
            await fill(served.client)
            events = [event async for event in served.client.stream(asked(gateway_pb2.ROUTE_AGENTIC))]
            assert queries(events)[0] == f"{FIRST.rstrip('?')}. {FOLLOW_UP}"


async def test_a_run_that_is_asked_for_again_costs_nothing(database_url: str, tmp_path: Path) -> None:
    async with ModelServer(script(Reply(ALONE))) as model:  # type: ignore[arg-type]
        llm = {"base_url": model.base_url, "model": "m", "retries": 0}
        async with running(settings_for(database_url, tmp_path, llm=llm)) as served:
            await fill(served.client)
            request = asked(gateway_pb2.ROUTE_STANDARD)
            request.request_id = new_request_id()
            first = await served.client.answer(request)
            calls = len(model.requests)
            assert await served.client.answer(request) == first
            assert len(model.requests) == calls


async def test_what_condensing_cost_is_taken_off_the_callers_caps() -> None:
    told = {"prompt_tokens": 900, "completion_tokens": 100, "total_tokens": 1000}
    async with rig([Reply(ALONE, usage=told, delay=0.3)], prices={"scripted": Price(1.0, 1.0, 1.0)}) as asked_of:
        history = (Turn("user", UntrustedText(FIRST)),)
        budget = Budget(max_steps=3, max_tokens=5_000, max_seconds=60.0, max_cost_usd=0.01)
        leaning = Question(UntrustedText(FOLLOW_UP), history=history, budget=budget)
        found = await understood(leaning, GuardedLlm(asked_of.llm))
    assert found.question.asked.raw == ALONE
    assert found.usage.billed_tokens == 1_000
    left = found.question.budget
    assert left.max_cost_usd == pytest.approx(0.009)
    assert left.max_seconds is not None
    assert 55.0 < left.max_seconds <= 59.7
    assert replace(left, max_cost_usd=0.01, max_seconds=60.0) == replace(budget, max_tokens=4_000)


async def test_what_leans_on_nothing_costs_no_call(database_url: str, tmp_path: Path) -> None:
    async with ModelServer(script(Reply(ALONE))) as model:  # type: ignore[arg-type]
        llm = {"base_url": model.base_url, "model": "m", "retries": 0}
        async with running(settings_for(database_url, tmp_path, llm=llm)) as served:
            await fill(served.client)
            await served.client.answer(question(FOLLOW_UP, route=gateway_pb2.ROUTE_STANDARD))
            request = asked(gateway_pb2.ROUTE_STANDARD)
            request.question = "At what hour does the harbour lantern of Alder Wharf get lit in winter?"
            await served.client.answer(request)
            request = asked()
            request.dry_run = True
            await served.client.answer(request)
            request = asked()
            request.budget.max_seconds = 2.0  # a fifth of it is too short for a call
            await served.client.answer(request)
            assert not any(map(condensing, model.requests))


@pytest.mark.parametrize("route", ROUTES)
async def test_without_a_model_the_rule_finds_the_document_that_a_follow_up_is_about(
    gateway: Running, route: gateway_pb2.Route.ValueType
) -> None:
    answer = await gateway.client.answer(asked(route))
    assert answer.citations[0].document_id == "pump"


async def test_a_session_is_a_conversation_without_its_history_being_sent(gateway: Running) -> None:
    client = gateway.client
    session = new_request_id()
    first = question(FIRST, session_id=session)
    assert "shed" in (await client.answer(first)).answer
    second = question(FOLLOW_UP, session_id=session, route=gateway_pb2.ROUTE_AGENTIC)
    events = [event async for event in client.stream(second)]
    assert queries(events)[0] == f"{FIRST.rstrip('?')}. {FOLLOW_UP}"
    elsewhere = question(FOLLOW_UP, session_id=new_request_id(), route=gateway_pb2.ROUTE_AGENTIC)
    events = [event async for event in client.stream(elsewhere)]
    assert queries(events)[0] == FOLLOW_UP
    another = question(FOLLOW_UP, session_id=session, collection="other", route=gateway_pb2.ROUTE_AGENTIC)
    from pointsman.v1 import corpus_pb2

    await client.ingest([corpus_pb2.Document(id="a", title="A", text="Another collection.")], collection="other")
    events = [event async for event in client.stream(another)]
    assert queries(events)[0] == FOLLOW_UP, "of another collection nothing is told"


async def test_who_has_other_access_groups_is_told_nothing_of_a_session(database_url: str, tmp_path: Path) -> None:
    from pointsman.client import Pointsman

    from router.access.keys import create_key

    async with running(settings_for(database_url, tmp_path, auth={"mode": "keys"})) as served:
        pool = served.application.pool
        admin = (await create_key(pool, "default", role="admin"))[0]
        crew = (await create_key(pool, "default", role="user", groups=["crew"]))[0]
        guest = (await create_key(pool, "default", role="user"))[0]
        async with Pointsman(served.target, token=admin) as client:
            await fill(client)
        async with Pointsman(served.target, token=crew) as client:
            await client.answer(question(FIRST, session_id="s"))
        follow_up = question(FOLLOW_UP, session_id="s", route=gateway_pb2.ROUTE_AGENTIC)
        async with Pointsman(served.target, token=guest) as client:
            assert queries([event async for event in client.stream(follow_up)])[0] == FOLLOW_UP


async def test_messages_of_an_openai_client_are_read_the_same_way(database_url: str, tmp_path: Path) -> None:
    async with ModelServer(script(Reply(ALONE))) as model:  # type: ignore[arg-type]
        llm = {"base_url": model.base_url, "model": "m", "retries": 0}
        async with (
            running(settings_for(database_url, tmp_path, llm=llm)) as served,
            open_http_beside(served.application, port=0) as port,
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as http,
        ):
            await fill(served.client)
            messages = [
                {"role": "user", "content": FIRST},
                {"role": "assistant", "content": "In the shed."},
                {"role": "user", "content": FOLLOW_UP},
            ]
            reply = await http.post("/v1/chat/completions", json={"model": "pointsman-agentic", "messages": messages})
            assert reply.status_code == 200
            assert [condensing(each) for each in model.requests].count(True) == 1
            run = reply.headers["x-pointsman-run"]
            plain = {"question": FOLLOW_UP, "history": [{"role": "user", "text": FIRST}], "route": "agentic"}
            assert json.loads((await http.post("/query", json=plain)).content)["answer"]
            assert [condensing(each) for each in model.requests].count(True) == 2
            stored = await served.application.journal.load("default", run)
            assert stored is not None
            assert stored.question is not None
            assert stored.question["standalone"] == ALONE
