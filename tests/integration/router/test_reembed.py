"""A change of embedder through a whole gateway: over gRPC, while it answers questions, with the shipped embedder."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest
from pointsman.client import Pointsman
from pointsman.v1 import corpus_pb2

from standard.corpus.reembed import worker
from tests.integration.router.conftest import DOCUMENTS, fill, running, settings_for
from tests.support.two_embedders import DIMENSIONS, second_server
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

READY = corpus_pb2.REEMBEDDING_STATE_READY
WHERE = "Where is the spare bilge pump kept?"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "LOOK_SECONDS", 0.05)


async def start(client: Pointsman, **fields: object) -> corpus_pb2.StartReembeddingResponse:
    request = corpus_pb2.StartReembeddingRequest(**fields)  # type: ignore[arg-type]
    return await client.corpus.StartReembedding(request, timeout=20, metadata=client.metadata)


async def get(client: Pointsman) -> corpus_pb2.GetReembeddingResponse:
    return await client.corpus.GetReembedding(corpus_pb2.GetReembeddingRequest(), timeout=10, metadata=client.metadata)


async def step(client: Pointsman, action: corpus_pb2.ReembeddingAction.ValueType) -> corpus_pb2.Reembedding:
    request = corpus_pb2.ChangeReembeddingRequest(action=action)
    answer = await client.corpus.ChangeReembedding(request, timeout=60, metadata=client.metadata)
    return answer.reembedding


async def ready(client: Pointsman) -> corpus_pb2.Reembedding:
    async def reached() -> corpus_pb2.Reembedding | None:
        change = (await get(client)).reembedding
        return change if change.state == READY else None

    return await eventually(reached, 20.0)


async def test_no_question_fails_while_two_replicas_are_switched_and_rolled_back_under_load(
    database_url: str, tmp_path: Path
) -> None:
    async with (
        second_server() as server,
        running(settings_for(database_url, tmp_path / "a")) as first,
        running(settings_for(database_url, tmp_path / "b")) as second,
    ):
        await fill(first.client)
        started = await start(first.client, model="openai:second", base_url=server.base_url)
        assert started.disk_bytes_needed > 0
        change = await ready(first.client)
        assert (change.former.embedder_id, change.new.dimensions) == ("all-MiniLM-L6-v2-int8", DIMENSIONS)
        assert (change.documents, change.remaining) == (len(DOCUMENTS), 0)
        answers = 0
        stop = asyncio.Event()

        async def ask(client: Pointsman) -> None:
            nonlocal answers
            while not stop.is_set():
                answer = await client.answer(WHERE)
                assert [each.document_id for each in answer.citations][:1] == ["pump"], answer
                answers += 1

        async def seen_by(client: Pointsman) -> str:
            found = await client.corpus.GetCollection(corpus_pb2.GetCollectionRequest(), timeout=10)
            return found.collection.embedder_id

        async with asyncio.TaskGroup() as group:
            for client in (first.client, second.client):
                group.create_task(ask(client))
                group.create_task(ask(client))
            await asyncio.sleep(0.3)
            await step(first.client, corpus_pb2.REEMBEDDING_ACTION_SWITCH)
            assert await seen_by(second.client) == "openai:second"
            asked = len(server.others)
            await asyncio.sleep(1.5)
            assert len(server.others) > asked
            await step(second.client, corpus_pb2.REEMBEDDING_ACTION_ROLL_BACK)
            await asyncio.sleep(0.5)
            await step(second.client, corpus_pb2.REEMBEDDING_ACTION_SWITCH)
            await asyncio.sleep(0.5)
            stop.set()
        assert answers > 20
        await first.client.ingest(
            [corpus_pb2.Document(id="rope", title="Rope", text="The long rope hangs in the loft.")]
        )

        async def is_found() -> bool:
            request = corpus_pb2.SearchPassagesRequest(query="Where does the long rope hang?")
            found = await second.client.corpus.SearchPassages(request, timeout=10)
            return found.passages[0].document_id == "rope"

        await eventually(is_found)  # a server may look at the former generation for a moment longer
        await step(first.client, corpus_pb2.REEMBEDDING_ACTION_FINISH)
        assert (await second.client.answer(WHERE)).citations
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await get(first.client)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_the_evidence_counts_for_the_route_of_new_vectors_where_it_is_asked_for(
    database_url: str, tmp_path: Path
) -> None:
    async with second_server() as server:
        for number, wanted in enumerate((False, True)):
            settings = settings_for(database_url, tmp_path / str(number), retrieval={"evidence": wanted})
            async with running(settings) as served:
                if not wanted:
                    await fill(served.client)
                    await start(served.client, model="openai:second", base_url=server.base_url)
                    await ready(served.client)
                    answer = await served.client.answer(WHERE)
                    assert answer.decision.HasField("evidence_probability")
                    await step(served.client, corpus_pb2.REEMBEDDING_ACTION_SWITCH)
                    await asyncio.sleep(1.2)
                answer = await served.client.answer(WHERE)
                assert answer.decision.HasField("evidence_probability") == wanted
                assert answer.citations[0].document_id == "pump"


async def test_a_change_is_compared_before_the_switch_and_what_was_done_is_kept(
    database_url: str, tmp_path: Path
) -> None:
    embedders = {"tiny": {"model": "openai:second", "base_url": "", "api_key": "sesame"}}
    async with second_server() as server:
        embedders["tiny"]["base_url"] = server.base_url
        async with running(settings_for(database_url, tmp_path, embedders=embedders)) as served:
            client = served.client
            await fill(client)
            await start(client, model="tiny")
            assert server.others[-1].headers["authorization"] == "Bearer sesame"
            await ready(client)
            question = corpus_pb2.CompareReembeddingRequest.Question(text=WHERE, supporting_ids=["pump"])
            request = corpus_pb2.CompareReembeddingRequest(questions=[question], top_k=2)
            found = await client.corpus.CompareReembedding(request, timeout=20)
            assert (found.questions, found.judged, found.former_recall, found.new_recall) == (1, 1, 1.0, 1.0)
            assert not found.sampled
            found = await client.corpus.CompareReembedding(corpus_pb2.CompareReembeddingRequest(), timeout=20)
            assert found.sampled
            assert found.questions >= 4
            assert (await start(client, model="tiny")).reembedding.state == READY
            await step(client, corpus_pb2.REEMBEDDING_ACTION_CANCEL)
            await start(client, model="tiny")
            done = [each.action for each in (await get(client)).changes]
            assert done == ["start", "cancel", "resume", "start"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"model": "openai:second", "base_url": "file:///etc/passwd"}, "base_url: must be the http"),
        ({"model": "openai:second", "base_url": "http://user:secret@host/v1"}, "must hold no credentials"),
        ({"model": "openai:second", "base_url": "http://127.0.0.1:9/v1", "dimensions": 5000}, "dimensions"),
        ({"model": "some/model", "base_url": "http://127.0.0.1:9/v1"}, "are for models openai:NAME"),
        ({"model": ""}, "is embedded with all-MiniLM-L6-v2-int8"),
        ({"model": "builtin"}, "is embedded with all-MiniLM-L6-v2-int8"),
        ({"model": "x" * 600}, "at most 512"),
        ({"collection": "nowhere", "model": "builtin"}, "there is no collection"),
    ],
)
async def test_a_start_that_cannot_be_is_refused_with_the_reason(
    database_url: str, tmp_path: Path, fields: dict[str, object], problem: str
) -> None:
    async with running(settings_for(database_url, tmp_path)) as served:
        await fill(served.client)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await start(served.client, **fields)
        assert problem in str(refused.value.details()) + str(refused.value)
        assert "secret" not in str(refused.value.details())


async def test_who_may_not_write_changes_no_embedder_and_only_an_operator_names_addresses(
    database_url: str, tmp_path: Path
) -> None:
    from router.access.keys import create_key

    async with (
        second_server() as server,
        running(settings_for(database_url, tmp_path, auth={"mode": "keys"})) as served,
    ):
        pool = served.application.pool
        keys = {role: (await create_key(pool, "default", role=role))[0] for role in ("user", "admin", "operator")}
        async with (
            Pointsman(served.target, token=keys["admin"]) as admin,
            Pointsman(served.target, token=keys["user"]) as user,
            Pointsman(served.target, token=keys["operator"]) as operator,
        ):
            await fill(admin)
            for client in (user, admin):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await start(client, model="openai:second", base_url=server.base_url)
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert not server.others
            await start(operator, model="openai:second", base_url=server.base_url)
            await ready(admin)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await step(user, corpus_pb2.REEMBEDDING_ACTION_SWITCH)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
            await step(admin, corpus_pb2.REEMBEDDING_ACTION_SWITCH)
            assert all(each.changed_by for each in (await get(admin)).changes)
