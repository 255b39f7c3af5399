"""Rollout in the running gateway: modes change under load, nothing fails, and what is aside stays aside."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio
from pointsman.client import question
from pointsman.v1 import admin_pb2, gateway_pb2

from router.decide import Policy, Rollout
from router.routing.policy import PolicyStore
from tests.integration.router.conftest import fill, running, settings_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.integration.router.conftest import Running

WHERE = "Where is the spare bilge pump kept?"
STANDARD, AGENTIC = gateway_pb2.ROUTE_STANDARD, gateway_pb2.ROUTE_AGENTIC
OFF, SHADOW = admin_pb2.ROLLOUT_MODE_OFF, admin_pb2.ROLLOUT_MODE_SHADOW
CANARY, ENFORCE = admin_pb2.ROLLOUT_MODE_CANARY, admin_pb2.ROLLOUT_MODE_ENFORCE


@pytest_asyncio.fixture
async def eager(database_url: str, tmp_path: Path) -> AsyncIterator[Running]:
    """A gateway that sends every question to the agentic route where it may."""
    async with running(settings_for(database_url, tmp_path, routing={"threshold": 0.0})) as served:
        await fill(served.client)
        yield served


async def switch(served: Running, tenant: str = "", **policy: Any) -> admin_pb2.RoutingPolicy:  # noqa: ANN401
    request = admin_pb2.UpdateRoutingPolicyRequest(tenant=tenant, policy=admin_pb2.RoutingPolicy(**policy))
    return (await served.client.admin.UpdateRoutingPolicy(request, timeout=10)).policy


async def decided(served: Running, **more: Any) -> tuple[gateway_pb2.Route.ValueType, bool]:  # noqa: ANN401
    """The route of an answer, and whether the rollout chose it."""
    answer = await served.client.answer(question(WHERE, **more))
    return answer.route, answer.decision.reason == gateway_pb2.DECISION_REASON_ROLLOUT


async def test_each_mode_lets_through_what_it_says(eager: Running) -> None:
    assert await decided(eager) == (AGENTIC, False)
    await switch(eager, rollout=OFF)
    assert await decided(eager) == (STANDARD, True)
    assert await decided(eager, route=AGENTIC) == (STANDARD, True), "off is a way back"
    await switch(eager, rollout=SHADOW)
    assert await decided(eager) == (STANDARD, True)
    assert await decided(eager, route=AGENTIC) == (AGENTIC, False)
    await switch(eager, rollout=CANARY, canary_percent=0.0)
    assert await decided(eager) == (STANDARD, True)
    await switch(eager, canary_percent=100.0)
    assert await decided(eager) == (AGENTIC, False)
    await switch(eager, rollout=ENFORCE)
    assert await decided(eager) == (AGENTIC, False)
    assert eager.metric("pointsman_routing_decisions_total", decision="standard", reason="rollout") == 4


async def test_a_canary_keeps_a_session_where_it_fell_and_takes_about_its_share(eager: Running) -> None:
    await switch(eager, rollout=CANARY, canary_percent=50.0)
    routes = {}
    for number in range(24):
        session = f"session-{number}"
        routes[session], _ = await decided(eager, session_id=session, dry_run=True)
    for session, route in routes.items():
        assert (await decided(eager, session_id=session, dry_run=True))[0] == route
    assert 5 <= sum(route == AGENTIC for route in routes.values()) <= 19
    await switch(eager, canary_by=admin_pb2.CANARY_BY_TENANT)
    assert len({(await decided(eager, session_id=session, dry_run=True))[0] for session in routes}) == 1


async def test_a_tenants_own_mode_wins_and_the_kill_switch_over_all(eager: Running) -> None:
    await switch(eager, rollout=OFF)
    await switch(eager, "default", rollout=ENFORCE)
    assert await decided(eager) == (AGENTIC, False)
    await switch(eager, kill_switch=True)
    assert await decided(eager) == (STANDARD, True)
    await switch(eager, "default", threshold=0.0)  # a change of something else leaves both as they were
    assert await decided(eager) == (STANDARD, True)
    await switch(eager, kill_switch=False)
    assert await decided(eager) == (AGENTIC, False)


async def test_a_change_that_does_not_know_of_rollout_leaves_it_alone(eager: Running) -> None:
    await switch(eager, rollout=SHADOW, shadow_sample=0.25, canary_percent=7.5)
    after = await switch(eager, threshold=0.3)
    assert (after.rollout, after.shadow_sample, after.canary_percent) == (SHADOW, 0.25, 7.5)


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"rollout": 99}, "policy.rollout"),
        ({"canary_by": 99}, "policy.canary_by"),
        ({"canary_percent": 100.5}, "policy.canary_percent"),
        ({"canary_percent": float("nan")}, "policy.canary_percent"),
        ({"shadow_sample": -0.1}, "policy.shadow_sample"),
    ],
)
async def test_a_rollout_that_means_nothing_is_refused(gateway: Running, policy: dict[str, Any], field: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=field) as caught:
        await switch(gateway, **policy)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_replicas_share_the_mode_and_every_change_is_noted(eager: Running) -> None:
    elsewhere = PolicyStore(eager.application.pool, Policy())
    await switch(eager, rollout=SHADOW)
    await switch(eager, rollout=CANARY, canary_percent=5.0)
    await elsewhere.refresh()
    assert (elsewhere.policy("anyone").rollout, elsewhere.policy("anyone").canary_percent) == (Rollout.CANARY, 5.0)
    latest, first = await elsewhere.changes()
    assert (latest.version, latest.changed_by, latest.after["rollout"]) == (2, "default", "canary")
    assert latest.before is not None
    assert latest.before["rollout"] == "shadow"
    assert (first.version, first.before, first.after["rollout"]) == (1, None, "shadow")
    assert latest.changed_at >= first.changed_at


async def asides(served: Running) -> list[dict[str, Any]]:
    async with served.application.pool.connection() as conn:
        return [row[0] for row in await (await conn.execute("select answer from shadow_answer")).fetchall()]


async def test_a_question_in_shadow_is_answered_aside_and_nobody_hears_of_it(eager: Running) -> None:
    await switch(eager, rollout=SHADOW)
    events = [event async for event in eager.client.stream(question(WHERE, request_id="seen"))]
    kinds = [event.WhichOneof("body") for event in events]
    assert events[-1].completed.route == STANDARD
    (aside,) = await some(eager)
    assert aside["answered"] is True
    assert 0.0 <= aside["word_f1"] <= 1.0
    assert aside["document_overlap"] == 1.0
    assert "shed" in aside["text"]
    trace = await eager.client.admin.GetTrace(admin_pb2.GetTraceRequest(request_id="seen"), timeout=10)
    assert [entry.kind for entry in trace.entries] == kinds
    erased = await eager.client.admin.EraseSubject(admin_pb2.EraseSubjectRequest(subject="seen"), timeout=10)
    assert (erased.runs, await asides(eager)) == (1, [])


async def some(served: Running) -> list[dict[str, Any]]:
    """The answers aside, once there are any."""
    async with asyncio.timeout(10):
        while not (found := await asides(served)):  # noqa: ASYNC110 - the database tells nobody
            await asyncio.sleep(0.02)
    return found


async def test_only_the_sample_is_answered_aside_and_no_more_at_once_than_places(
    database_url: str, tmp_path: Path
) -> None:
    routing = {"threshold": 0.0, "rollout": "shadow", "shadow_concurrency": 1}
    async with running(settings_for(database_url, tmp_path, routing=routing)) as served:
        await fill(served.client)
        shadow = served.application.gateway._parts.shadow
        assert shadow is not None
        release, begun = asyncio.Event(), []

        async def slow(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            begun.append(arguments[0].request_id)
            await release.wait()
            raise TimeoutError

        shadow._agentic = slow
        at = time.perf_counter()
        for _ in range(5):
            await served.client.answer(WHERE)
        assert time.perf_counter() - at < 20.0
        assert (len(begun), shadow.left_out) == (1, 4)
        release.set()
        assert [aside["error"] for aside in await some(served)] == ["TimeoutError"]
        await switch(served, shadow_sample=0.0)
        await served.client.answer(WHERE)
        assert (len(begun), shadow.left_out) == (1, 4)


async def test_no_request_fails_while_the_mode_is_switched_under_load(eager: Running) -> None:
    stop = asyncio.Event()
    reasons: set[int] = set()
    routes: set[int] = set()

    async def ask(worker: int) -> int:
        done = 0
        while not stop.is_set():
            answer = await eager.client.answer(question(WHERE, session_id=f"w{worker}-{done % 5}"))
            assert answer.outcome == gateway_pb2.OUTCOME_ANSWERED
            assert "shed" in answer.answer
            reasons.add(answer.decision.reason)
            routes.add(answer.route)
            done += 1
        return done

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(ask(worker)) for worker in range(4)]
        for mode, kill in itertools.product((SHADOW, CANARY, ENFORCE, OFF, ENFORCE), (False, True, False)):
            await switch(eager, rollout=mode, canary_percent=50.0, kill_switch=kill)
            await asyncio.sleep(0.15)
        stop.set()
    assert sum(worker.result() for worker in workers) > 20
    assert routes == {STANDARD, AGENTIC}
    assert gateway_pb2.DECISION_REASON_ROLLOUT in reasons
    succeeded = eager.application.metrics.registry.get_sample_value(
        "grpc_server_handled_total",
        {
            "grpc_type": "unary",
            "grpc_service": "pointsman.v1.GatewayService",
            "grpc_method": "Answer",
            "grpc_code": "OK",
        },
    )
    assert succeeded == sum(worker.result() for worker in workers)
