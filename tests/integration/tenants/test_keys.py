"""Keys over real gRPC and HTTP: who gets in, what they may, and that tenants do not meet."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from pointsman.client import Pointsman, question
from pointsman.v1 import admin_pb2, corpus_pb2, gateway_pb2

from router.access.keys import list_keys, revoke_key
from router.process.serving import open_server_process
from router.settings import BadSettings
from tests.integration.tenants.conftest import LANTERN, PUMP, WHERE, Guarded, code_of, guarded, settings_for

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

DENIED, UNKNOWN, NOT_FOUND = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.NOT_FOUND,
)


async def test_without_a_valid_key_nothing_is_answered_over_grpc(gateway: Guarded) -> None:
    key = await gateway.key("acme")
    for wrong in ("", "nonsense", f"{key}x", key[:-1] + ("A" if key[-1] != "A" else "B"), f"pm_{'0' * 12}_{'a' * 43}"):
        async with gateway.client(wrong) as client:
            assert await code_of(client.answer(WHERE)) is UNKNOWN
            assert await code_of(anext(client.stream(WHERE))) is UNKNOWN
            assert await code_of(client.ingest([corpus_pb2.Document(id="a", text=PUMP)])) is UNKNOWN
            assert await code_of(client.admin.GetRoutingPolicy(admin_pb2.GetRoutingPolicyRequest())) is UNKNOWN


async def test_a_key_may_come_as_x_api_key(gateway: Guarded) -> None:
    key = await gateway.key("acme")
    async with gateway.client("") as client:
        listed = await client.corpus.ListCollections(
            corpus_pb2.ListCollectionsRequest(), metadata=(("x-api-key", key),), timeout=10
        )
    assert not listed.collections
    assert (await gateway.http.get("/v1/models", headers={"x-api-key": key})).status_code == 200


async def test_health_is_open_and_reflection_is_not(gateway: Guarded) -> None:
    async with grpc.aio.insecure_channel(gateway.target) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        assert await code_of(anext(aiter(stub.ServerReflectionInfo(iter([asked]))))) is UNKNOWN
        metadata = (("authorization", f"Bearer {await gateway.key('acme')}"),)
        reply = await anext(aiter(stub.ServerReflectionInfo(iter([asked]), metadata=metadata)))
        assert "pointsman.v1.GatewayService" in {each.name for each in reply.list_services_response.service}


async def test_each_facade_refuses_in_its_own_shape(gateway: Guarded) -> None:
    chat = await gateway.post("/v1/chat/completions", {"model": "pointsman", "messages": []}, "wrong")
    assert (chat.status_code, chat.headers["www-authenticate"]) == (401, "Bearer")
    assert chat.json()["error"]["code"] == "invalid_api_key"
    plain = await gateway.post("/query", {"question": WHERE})
    assert (plain.status_code, plain.json()["error"]["reason"]) == (401, "UNAUTHENTICATED")
    assert (await gateway.post("/nowhere", {})).status_code == 401
    assert (await gateway.http.get("/healthz")).status_code == 200
    assert (await gateway.http.get("/readyz")).json()["status"] == "ready"
    dozen = {"authorization": "Bearer a", "x-api-key": "b"}
    assert (await gateway.http.get("/v1/models", headers=dozen)).status_code == 401


async def test_a_body_is_not_read_before_its_sender_is_known(gateway: Guarded) -> None:
    refused = await gateway.http.post("/query", content=b"{" * 20_000_000, headers={"content-type": "application/json"})
    assert refused.status_code == 401


async def test_tenants_see_nothing_of_each_other(gateway: Guarded) -> None:
    ours, theirs = await gateway.key("acme", role="admin"), await gateway.key("bolt", role="admin")
    await gateway.fill(ours, "wharf", PUMP)
    await gateway.fill(theirs, "wharf", LANTERN)
    await gateway.fill(ours, "secret", PUMP)
    async with gateway.client(ours) as acme, gateway.client(theirs) as bolt:
        mine = await acme.answer(question(WHERE, collection="wharf", session_id="s", request_id="r-1"))
        assert mine.citations[0].document_id == "wharf-1"
        assert "shed at Alder Wharf" in mine.answer
        other = await bolt.answer(question(WHERE, collection="wharf", session_id="s"))
        assert "shed" not in other.answer
        listed = await bolt.corpus.ListCollections(corpus_pb2.ListCollectionsRequest(), metadata=bolt.metadata)
        assert [each.name for each in listed.collections] == ["wharf"]
        assert await code_of(bolt.answer(question(WHERE, collection="secret"))) is NOT_FOUND

        trace = admin_pb2.GetTraceRequest(request_id="r-1")
        assert (await acme.admin.GetTrace(trace, metadata=acme.metadata)).state == "done"
        assert await code_of(bolt.admin.GetTrace(trace, metadata=bolt.metadata)) is NOT_FOUND
        assert await code_of(anext(bolt.resume("r-1"))) is NOT_FOUND
        assert await code_of(bolt.feedback("r-1", rating=1.0)) is NOT_FOUND
        erase = admin_pb2.EraseSubjectRequest(subject="s")
        assert (await bolt.admin.EraseSubject(erase, metadata=bolt.metadata)).runs == 1
        assert (await acme.admin.GetTrace(trace, metadata=acme.metadata)).state == "done"

    over_http = await gateway.post("/v1/vector_stores/secret/search", {"query": WHERE}, theirs)
    assert over_http.status_code == 404
    assert (await gateway.post("/query", {"question": WHERE, "collection": "secret"}, theirs)).status_code == 404
    found = await gateway.post("/query", {"question": WHERE, "collection": "secret"}, ours)
    assert "shed at Alder Wharf" in found.json()["answer"]


async def test_a_key_of_some_collections_learns_nothing_of_the_others(gateway: Guarded) -> None:
    admin = await gateway.key("acme", role="admin")
    await gateway.fill(admin, "wharf", PUMP)
    await gateway.fill(admin, "secret", LANTERN)
    key = await gateway.key("acme", collections=["wharf"])
    async with gateway.client(key) as client, gateway.client(admin) as boss:
        await boss.answer(question("When is the lantern lit?", collection="secret", request_id="hidden"))
        assert "shed" in (await client.answer(question(WHERE, collection="wharf"))).answer
        listed = await client.corpus.ListCollections(corpus_pb2.ListCollectionsRequest(), metadata=client.metadata)
        assert [each.name for each in listed.collections] == ["wharf"]
        errors = []
        for name in ("secret", "missing"):
            calls: list[Awaitable[object]] = [
                client.answer(question(WHERE, collection=name)),
                client.classify(WHERE, collection=name),
                client.corpus.GetCollection(corpus_pb2.GetCollectionRequest(name=name), metadata=client.metadata),
                client.corpus.SearchPassages(
                    corpus_pb2.SearchPassagesRequest(query=WHERE, collection=name), metadata=client.metadata
                ),
                client.corpus.ListDocuments(corpus_pb2.ListDocumentsRequest(collection=name), metadata=client.metadata),
                client.corpus.GetDocument(
                    corpus_pb2.GetDocumentRequest(collection=name, id=f"{name}-1"), metadata=client.metadata
                ),
            ]
            assert [await code_of(call) for call in calls] == [NOT_FOUND] * len(calls)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.answer(question(WHERE, collection=name))
            errors.append((caught.value.details() or "").replace(name, "NAME"))
        assert errors[0] == errors[1], "one that exists is told from one that does not"
        assert await code_of(anext(client.resume("hidden"))) is NOT_FOUND
        await boss.answer(question(WHERE, collection="wharf", request_id="the-boss-asked"))
        assert await code_of(anext(client.resume("the-boss-asked"))) is NOT_FOUND
        own = await client.answer(question(WHERE, collection="wharf", request_id="own"))
        assert [event async for event in client.resume("own")][-1].completed.answer == own.answer
    assert (await gateway.post("/v1/vector_stores/secret/search", {"query": WHERE}, key)).status_code == 404
    assert (await gateway.post("/v1/vector_stores/wharf/search", {"query": WHERE}, key)).status_code == 200


async def test_a_user_asks_and_changes_nothing(gateway: Guarded) -> None:
    await gateway.fill(await gateway.key("acme", role="admin"), "default", PUMP)
    async with gateway.client(await gateway.key("acme")) as user:
        assert "shed" in (await user.answer(WHERE)).answer
        calls: list[Awaitable[object]] = [
            user.corpus.CreateCollection(corpus_pb2.CreateCollectionRequest(name="x"), metadata=user.metadata),
            user.corpus.DeleteCollection(corpus_pb2.DeleteCollectionRequest(name="default"), metadata=user.metadata),
            user.corpus.DeleteDocuments(corpus_pb2.DeleteDocumentsRequest(ids=["pump"]), metadata=user.metadata),
            user.ingest([corpus_pb2.Document(id="a", text=PUMP)]),
            user.admin.GetRoutingPolicy(admin_pb2.GetRoutingPolicyRequest(), metadata=user.metadata),
            user.admin.UpdateRoutingPolicy(admin_pb2.UpdateRoutingPolicyRequest(tenant="acme"), metadata=user.metadata),
            user.admin.GetTrace(admin_pb2.GetTraceRequest(request_id="r"), metadata=user.metadata),
            user.admin.EraseSubject(admin_pb2.EraseSubjectRequest(subject="s"), metadata=user.metadata),
        ]
        assert [await code_of(call) for call in calls] == [DENIED] * len(calls)


async def test_an_admin_changes_the_policy_of_its_own_tenant_alone(gateway: Guarded) -> None:
    policy = admin_pb2.RoutingPolicy(threshold=0.9, safe_route=gateway_pb2.ROUTE_STANDARD)

    def change(client: Pointsman, tenant: str) -> Awaitable[admin_pb2.UpdateRoutingPolicyResponse]:
        request = admin_pb2.UpdateRoutingPolicyRequest(tenant=tenant, policy=policy)
        return client.admin.UpdateRoutingPolicy(request, metadata=client.metadata, timeout=10)

    async with gateway.client(await gateway.key("acme", role="admin")) as admin:
        assert (await change(admin, "acme")).policy.threshold == 0.9
        assert await code_of(change(admin, "bolt")) is DENIED
        assert await code_of(change(admin, "")) is DENIED
    async with gateway.client(await gateway.key("acme", role="operator")) as operator:
        assert (await change(operator, "bolt")).policy.threshold == 0.9
        assert (await change(operator, "")).policy.threshold == 0.9


async def test_a_user_reads_documents_of_its_groups_alone(gateway: Guarded) -> None:
    admin = await gateway.key("acme", role="admin")
    async with gateway.client(admin) as client:
        await client.ingest([corpus_pb2.Document(id="pump", title="Pump", text=PUMP, access_groups=["deck"])])
    async with (
        gateway.client(await gateway.key("acme", groups=["deck"])) as deck,
        gateway.client(await gateway.key("acme", groups=["galley"])) as galley,
    ):
        assert "shed" in (await deck.answer(WHERE)).answer
        assert "shed" not in (await galley.answer(WHERE)).answer


async def refusal(client: Pointsman) -> grpc.aio.AioRpcError | None:
    try:
        await client.answer(WHERE)
    except grpc.aio.AioRpcError as error:
        return error
    return None


async def test_a_revoked_key_stops_within_seconds_on_every_replica(
    gateway: Guarded, database_url: str, tmp_path: Path
) -> None:
    key = await gateway.key("acme", role="admin")
    await gateway.fill(key, "default", PUMP)
    async with AsyncExitStack() as stack:
        replica = await stack.enter_async_context(guarded(settings_for(database_url, tmp_path / "replica")))
        here = await stack.enter_async_context(gateway.client(key))
        there = await stack.enter_async_context(replica.client(key))
        await here.answer(WHERE)
        await there.answer(WHERE)
        assert (await replica.post("/query", {"question": WHERE}, key)).status_code == 200
        (stored,) = await list_keys(gateway.application.pool, "acme")
        await revoke_key(gateway.application.pool, stored.key_id)
        at = time.monotonic()
        for client in (here, there):
            while (refused := await refusal(client)) is None:
                assert time.monotonic() - at < 5.0, "the revoked key still works"
                await asyncio.sleep(0.1)
            assert (refused.code(), "is revoked" in (refused.details() or "")) == (UNKNOWN, True)
        assert (await replica.post("/query", {"question": WHERE}, key)).status_code == 401


async def test_an_expired_key_is_refused(gateway: Guarded) -> None:
    key = await gateway.key("acme", expires_in=dt.timedelta(seconds=1))
    assert (await gateway.http.get("/v1/models", headers={"x-api-key": key})).status_code == 200
    await asyncio.sleep(1.1)
    refused = await gateway.http.get("/v1/models", headers={"x-api-key": key})
    assert (refused.status_code, "is expired" in refused.text) == (401, True)


async def test_the_database_holds_nothing_of_a_key_that_opens(gateway: Guarded) -> None:
    key = await gateway.key("acme")
    async with gateway.application.pool.connection() as conn:
        row = await (await conn.execute("select to_jsonb(api_key)::text from api_key")).fetchone()
    assert row is not None
    assert key not in row[0]
    assert key.rsplit("_", 1)[1] not in row[0]


async def test_with_keys_any_address_may_be_listened_on_and_without_none(database_url: str, tmp_path: Path) -> None:
    wide = {"server": {"host": "0.0.0.0"}, "http": {"host": "0.0.0.0"}}
    async with (
        open_server_process(settings_for(database_url, tmp_path, **wide)) as server,
        Pointsman(server.target, timeout_seconds=10.0) as client,
    ):
        assert await code_of(client.answer(WHERE)) is UNKNOWN
    for section in ({"server": {"host": "0.0.0.0"}}, {"server": {"metrics_host": "0.0.0.0"}}, {"http": {"host": "::"}}):
        open_to_all = settings_for(database_url, tmp_path / "open", auth={"mode": "none"}, **section)
        with pytest.raises((BadSettings, ExceptionGroup)) as caught:
            async with open_server_process(open_to_all):
                pass
        assert "auth.mode" in repr(caught.value)
