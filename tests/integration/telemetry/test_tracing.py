"""Traces as a collector gets them over OTLP: a gateway behind gRPC and HTTP, a scripted model, a real receiver."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import httpx2
import pytest
from pointsman.client import new_request_id, question
from pointsman.v1 import admin_pb2, gateway_pb2

from router.process.serving import open_http_beside
from tests.integration.agentic.test_decide import reply
from tests.integration.router.conftest import fill, running, settings_for
from tests.support.collector import Collector
from tests.support.model_server import Failure, ModelServer, Recorded, Reply, always
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.integration.router.conftest import Running
    from tests.support.model_server import Script

WHERE = "Where is the spare bilge pump kept?"
SAID = "It is in the shed at Alder Wharf [S1]."
TRACE, ABOVE = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{ABOVE}-01", f"00-{TRACE}-{ABOVE}-00"
STANDARD, AGENTIC = gateway_pb2.ROUTE_STANDARD, gateway_pb2.ROUTE_AGENTIC
BUILTIN = "all-MiniLM-L6-v2-int8"
RPC = "pointsman.v1.GatewayService/Answer"


@dataclass(frozen=True, slots=True)
class Traced:
    """A gateway that sends its traces somewhere, and its model."""

    served: Running
    model: ModelServer
    http: httpx2.AsyncClient

    async def answer(
        self,
        traceparent: str = "",
        state: str = "",
        *,
        route: gateway_pb2.Route.ValueType = STANDARD,
        request_id: str = "",
        collection: str = "",
    ) -> tuple[gateway_pb2.AnswerResponse, dict[str, str]]:
        """Ask over gRPC; the answer and the trailing metadata."""
        metadata = [("traceparent", traceparent)] if traceparent else []
        metadata += [("tracestate", state)] if state else []
        asked = question(WHERE, route=route, request_id=request_id or new_request_id(), collection=collection)
        call = self.served.client.gateway.Answer(asked, metadata=metadata, timeout=30.0)
        answered = await call
        trailing = await call.trailing_metadata()
        return answered, {str(name): str(value) for name, value in trailing or ()}


@asynccontextmanager
async def gateway_to(
    endpoint: str, script: Script, database_url: str, folder: Path, **sections: dict[str, Any]
) -> AsyncIterator[Traced]:
    """A filled gateway that records every call unless `traces` says otherwise. What it recorded is sent at the end."""
    async with ModelServer(script) as model:
        llm = {"base_url": model.base_url, "model": "m", "retries": 0}
        traces = {"endpoint": endpoint, "ratio": 1.0} | sections.pop("traces", {})
        given = {"llm": llm | sections.pop("llm", {}), "traces": traces, **sections}
        async with (
            running(settings_for(database_url, folder, **given)) as served,
            open_http_beside(served.application, port=0) as port,
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as http,
        ):
            await fill(served.client)
            yield Traced(served, model, http)


def of(trace_id: str, collector: Collector) -> Collector:
    """What came of one trace."""
    return Collector(spans=[span for span in collector.spans if span.trace_id == trace_id])


def assert_within(collector: Collector) -> None:
    """Every span but the outermost has its parent here, and none begins before it."""
    known = {span.span_id: span for span in collector.spans}
    roots = [span for span in collector.spans if span.parent_id not in known]
    assert len(roots) == 1, [span.name for span in roots]
    for span in collector.spans:
        above = known.get(span.parent_id)
        assert above is None or above.started <= span.started + 0.001, span.name


async def test_a_standard_answer_over_grpc_is_a_tree_below_its_callers_span(database_url: str, tmp_path: Path) -> None:
    with Collector() as collector:
        async with gateway_to(collector.url, always(Reply(SAID)), database_url, tmp_path) as traced:
            answered, trailing = await traced.answer(SAMPLED, "vendor=of-the-caller")
            assert trailing["x-trace-id"] == TRACE
            (asked,) = traced.model.requests
    tree = of(TRACE, collector)
    assert_within(tree)
    call, run, chat = tree.one(RPC), tree.one("pointsman.run"), tree.one("chat m")
    assert (call.kind, call.parent_id, call.state) == ("server", ABOVE, "vendor=of-the-caller")
    assert call.attributes["rpc.system.name"] == "grpc"
    assert call.attributes["rpc.method"] == RPC
    assert call.attributes["rpc.response.status_code"] == "OK"
    assert call.attributes["pointsman.request_id"] == answered.request_id
    assert call.attributes["pointsman.outcome"] == "answered"
    assert not call.failed
    assert tree.above(run) == [RPC]
    assert run.attributes["pointsman.decision"] == "standard"
    assert run.attributes["pointsman.decision.reason"] == "forced"
    for name in ("retrieval default", "pointsman.classify", "pointsman.decide"):
        assert tree.above(tree.one(name)) == ["pointsman.run", RPC], name
    embedded = tree.named(f"embeddings {BUILTIN}")
    assert {tuple(tree.above(span)) for span in embedded} >= {("pointsman.run", RPC)}
    assert all(span.attributes["gen_ai.embeddings.dimension.count"] == 384 for span in embedded)
    retrieval = tree.one("retrieval default")
    assert retrieval.attributes["gen_ai.operation.name"] == "retrieval"
    assert retrieval.attributes["gen_ai.data_source.id"] == "default"
    assert retrieval.attributes["pointsman.retrieval.passages"] > 0
    assert retrieval.attributes["pointsman.retrieval.dense_seconds"] > 0
    assert (chat.kind, tree.above(chat)) == ("client", ["pointsman.run", RPC])
    assert chat.attributes["gen_ai.request.model"] == "m"
    assert chat.attributes["gen_ai.provider.name"] == "openai"
    assert chat.attributes["gen_ai.usage.output_tokens"] > 0
    assert chat.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert 0 < chat.attributes["gen_ai.response.time_to_first_chunk"] < chat.ended - chat.started
    assert chat.attributes["server.address"] == "127.0.0.1"
    # The model's server was told in which trace it works, and below which span.
    assert asked.headers["traceparent"] == f"00-{TRACE}-{chat.span_id}-01"
    assert asked.headers["tracestate"] == "vendor=of-the-caller"
    statements = [span for span in tree.spans if span.attributes.get("db.system.name") == "postgresql"]
    assert {"INSERT run", "UPDATE run"} <= {span.name for span in statements}
    assert any("retrieval default" in tree.above(span) for span in statements)
    assert all(span.attributes["db.query.summary"] == span.name for span in statements)
    assert {span.schema_url for span in tree.spans} == {"https://opentelemetry.io/schemas/1.41.0"}
    assert call.resource["service.name"] == "pointsman"


async def test_the_tree_of_an_agentic_answer_over_http_shows_each_step(database_url: str, tmp_path: Path) -> None:
    queries = iter(("the deputy of the dockmaster", ""))

    def model(request: Recorded) -> Reply:
        if "decide whether" not in request.text("system"):
            return Reply("Edda Quill signs for it [S1].")
        query = next(queries, "")
        return reply(0.4 if query else 0.9, "search" if query else "answer", query=query, relevant=["S1"])

    with Collector() as collector:
        async with gateway_to(collector.url, model, database_url, tmp_path) as traced:
            body = {"question": "Who signs for the spare pump, by name?", "route": "agentic"}
            response = await traced.http.post("/query", json=body, headers={"traceparent": SAMPLED})
            assert response.status_code == 200, response.text
            assert response.headers["x-trace-id"] == TRACE
            assert response.headers["x-request-id"]
    tree = of(TRACE, collector)
    assert_within(tree)
    call, loop = tree.one("POST /query"), tree.one("invoke_agent pointsman")
    assert (call.kind, call.parent_id) == ("server", ABOVE)
    assert call.attributes["http.request.method"] == "POST"
    assert call.attributes["http.route"] == "/query"
    assert call.attributes["http.response.status_code"] == 200
    assert call.attributes["pointsman.route"] == "agentic"
    assert tree.above(loop) == ["pointsman.run", "POST /query"]
    assert loop.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert loop.attributes["gen_ai.agent.name"] == "pointsman"
    steps = [span for span in tree.spans if tree.above(span)[:1] == ["invoke_agent pointsman"]]
    names = [span.name for span in sorted(steps, key=lambda span: span.started)]
    told = [name for name in names if not name.startswith(("INSERT", "UPDATE", "SELECT", "DELETE", "embeddings"))]
    assert told[0] == "agentic.judge"
    assert told[-1] == "agentic.answer"
    assert {"agentic.propose", "agentic.guard", "execute_tool search"} <= set(told)
    (act,) = [span for span in steps if span.name == "execute_tool search"]
    assert act.attributes["gen_ai.tool.name"] == "search"
    inner = [span for span in tree.named("retrieval default") if act.name in tree.above(span)]
    assert len(inner) == 1
    chats = tree.named("chat m")
    assert {span.attributes["pointsman.purpose"] for span in chats} >= {"answer", "control"} or len(chats) >= 3
    assert all("invoke_agent pointsman" in tree.above(span) for span in chats)
    answering = [span for span in chats if span.attributes["pointsman.purpose"] == "answer"]
    assert [tree.above(span)[0] for span in answering] == ["agentic.answer"]


@pytest.mark.parametrize("content", [False, True])
async def test_no_text_is_on_any_span_unless_it_is_asked_for(
    database_url: str, tmp_path: Path, *, content: bool
) -> None:
    with Collector() as collector:
        traces = {"content": content}
        async with gateway_to(collector.url, always(Reply(SAID)), database_url, tmp_path, traces=traces) as traced:
            await traced.answer(SAMPLED)
    tree = of(TRACE, collector)
    for text in ("bilge", "shed at Alder", "The dockmaster signs"):
        assert (text in tree.text()) is content, text
    if content:
        chat = tree.one("chat m").attributes
        assert WHERE in chat["gen_ai.input.messages"]
        assert "It is in the shed" in chat["gen_ai.output.messages"]
        assert "The spare bilge pump" in tree.one("retrieval default").attributes["gen_ai.retrieval.documents"]
        assert tree.one("pointsman.run").attributes["pointsman.question"] == WHERE


async def test_content_needs_consent_to_keep_texts(database_url: str, tmp_path: Path) -> None:
    with Collector() as collector:
        sections: dict[str, dict[str, Any]] = {"traces": {"content": True}, "journal": {"questions": "hash"}}
        async with gateway_to(collector.url, always(Reply(SAID)), database_url, tmp_path, **sections) as traced:
            await traced.answer(SAMPLED)
    assert "bilge" not in of(TRACE, collector).text()


async def test_the_caller_decides_what_is_recorded_and_else_the_ratio(database_url: str, tmp_path: Path) -> None:
    with Collector() as collector:
        script = always(Reply(SAID))
        async with gateway_to(collector.url, script, database_url, tmp_path, traces={"ratio": 0.0}) as traced:
            _, alone = await traced.answer()
            assert re.fullmatch("[0-9a-f]{32}", alone["x-trace-id"])
            _, unsampled = await traced.answer(UNSAMPLED)
            assert unsampled["x-trace-id"] == TRACE
            # What is not recorded is told so to the model's server, in the same trace.
            sent = [request.headers["traceparent"] for request in traced.model.requests]
            assert re.fullmatch(f"00-{alone['x-trace-id']}-[0-9a-f]{{16}}-00", sent[0])
            assert re.fullmatch(f"00-{TRACE}-[0-9a-f]{{16}}-00", sent[1])
            await traced.answer(SAMPLED)
    assert {span.trace_id for span in collector.spans} == {TRACE}
    assert collector.one(RPC).parent_id == ABOVE


@pytest.mark.parametrize(
    "header",
    [
        "", "nonsense", f"00-{TRACE}-{ABOVE}", f"ff-{TRACE}-{ABOVE}-01", f"00-{'0' * 32}-{ABOVE}-01",
        f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{ABOVE}-01", f"{SAMPLED}-more",
    ],
)  # fmt: skip
async def test_a_header_that_is_no_trace_context_begins_a_trace(
    header: str, shared_gateway: tuple[Traced, Collector]
) -> None:
    traced, _ = shared_gateway
    response = await traced.http.post("/query", json={"question": WHERE}, headers={"traceparent": header})
    assert response.status_code == 200
    assert response.headers["x-trace-id"] != TRACE


@pytest.fixture
async def shared_gateway(database_url: str, tmp_path: Path) -> AsyncIterator[tuple[Traced, Collector]]:
    with Collector() as collector:
        async with gateway_to(collector.url, always(Reply(SAID)), database_url, tmp_path) as traced:
            yield traced, collector


async def test_without_an_endpoint_the_callers_context_is_passed_on_unchanged(
    database_url: str, tmp_path: Path
) -> None:
    async with gateway_to("", always(Reply(SAID)), database_url, tmp_path) as traced:
        _, trailing = await traced.answer(SAMPLED, "vendor=x")
        _, nothing = await traced.answer()
        first, second = traced.model.requests
    assert trailing["x-trace-id"] == TRACE
    assert (first.headers["traceparent"], first.headers["tracestate"]) == (SAMPLED, "vendor=x")
    assert "x-trace-id" not in nothing
    assert "traceparent" not in second.headers


async def test_an_error_is_on_its_span_and_its_trace_in_the_metadata_beside_the_details(
    database_url: str, tmp_path: Path
) -> None:
    with Collector() as collector:
        async with gateway_to(collector.url, always(Reply(SAID)), database_url, tmp_path) as traced:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await traced.answer(SAMPLED, collection="nowhere")
            names = [str(name) for name, _ in caught.value.trailing_metadata() or ()]
            assert "x-trace-id" in names
            assert "grpc-status-details-bin" in names
    tree = of(TRACE, collector)
    call = tree.one(RPC)
    assert call.attributes["rpc.response.status_code"] == "NOT_FOUND"
    assert not call.failed  # the caller's mistake is no failure of the server
    assert tree.one("pointsman.run").failed
    assert tree.one("pointsman.run").attributes["error.type"] == "NOT_FOUND"


async def test_each_failed_attempt_of_the_model_is_seen_in_its_call(database_url: str, tmp_path: Path) -> None:
    script: Script = [Failure(500), Reply(SAID)]
    with Collector() as collector:
        async with gateway_to(collector.url, script, database_url, tmp_path, llm={"retries": 1}) as traced:
            await traced.answer(SAMPLED)
    chat = of(TRACE, collector).one("chat m")
    assert chat.events == ("attempt failed",)
    assert chat.attributes["pointsman.attempts"] == 2
    assert not chat.failed


async def test_a_run_that_goes_on_elsewhere_points_to_where_it_began(database_url: str, tmp_path: Path) -> None:
    asks = reply(0.3, "ask", question="Which pump do you mean?", options=["the bilge pump", "the fire pump"])
    replies = iter([asks, reply(1.0, "answer", relevant=["S1"]), Reply(SAID)])

    def model(_request: Recorded) -> Reply:
        return next(replies)

    with Collector() as collector:
        async with gateway_to(collector.url, model, database_url, tmp_path) as first:
            name = new_request_id()
            answered, before = await first.answer(SAMPLED, route=AGENTIC, request_id=name)
            assert answered.outcome == gateway_pb2.OUTCOME_NEEDS_CLARIFICATION
            settings = first.served.application.settings
            async with running(settings) as second:
                resumed = second.client.gateway.ResumeAnswer(
                    gateway_pb2.ResumeAnswerRequest(request_id=name, input="the bilge pump"), timeout=30.0
                )
                events = [response.event async for response in resumed]
                after = dict(await resumed.trailing_metadata() or ())
                assert events[-1].WhichOneof("body") == "completed"
                trace = await second.client.admin.GetTrace(admin_pb2.GetTraceRequest(request_id=name))
    assert list(trace.trace_ids) == [before["x-trace-id"], after["x-trace-id"]]
    began, went_on = (of(trace_id, collector).one("pointsman.run") for trace_id in trace.trace_ids)
    assert [link for link, _ in went_on.links] == [began.trace_id]
    assert of(began.trace_id, collector).spans


async def test_a_run_without_readers_stays_in_its_callers_trace(database_url: str, tmp_path: Path) -> None:
    with Collector() as collector:
        script = always(Reply(SAID, delay=0.3))
        detached = {"detach": True}
        async with gateway_to(collector.url, script, database_url, tmp_path, journal=detached) as traced:
            name = new_request_id()
            asking = asyncio.create_task(traced.answer(SAMPLED, request_id=name))
            await traced.model.arrived(1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking

            asked = admin_pb2.GetTraceRequest(request_id=name)
            async with asyncio.timeout(10):
                while (await traced.served.client.admin.GetTrace(asked)).state != "done":  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
    tree = of(TRACE, collector)
    call, run = tree.one(RPC), tree.one("pointsman.run")
    assert run.parent_id == call.span_id
    assert run.ended > call.ended
    assert not run.failed


async def test_questions_of_one_batch_each_have_their_trace_at_the_embedding_endpoint(
    database_url: str, tmp_path: Path
) -> None:
    async with ModelServer(always(Reply(SAID))) as endpoint:
        embedding = {"model": "openai:e", "base_url": endpoint.base_url, "dimensions": 384}
        with Collector() as collector:
            script = always(Reply(SAID))
            async with gateway_to(collector.url, script, database_url, tmp_path, embedding=embedding) as traced:
                endpoint.others.clear()
                await traced.answer(SAMPLED)
                sent = [each.headers.get("traceparent", "") for each in endpoint.others]
    tree = of(TRACE, collector)
    calls = [span for span in tree.named("embeddings e") if span.kind == "client"]
    assert calls
    assert {f"00-{TRACE}-{span.span_id}-01" for span in calls} == {each for each in sent if TRACE in each}
    assert tree.above(calls[0])[0] == "embeddings openai:e"


async def test_a_collector_that_is_away_slows_no_call_and_what_is_lost_is_counted(
    database_url: str, tmp_path: Path
) -> None:
    traces = {"queue": 8, "timeout_seconds": 0.2, "flush_seconds": 0.3}
    script = always(Reply(SAID))
    async with gateway_to("http://127.0.0.1:9", script, database_url, tmp_path, traces=traces) as traced:
        started = time.perf_counter()
        await asyncio.gather(*(traced.answer() for _ in range(4)))
        assert time.perf_counter() - started < 5.0
        await until(lambda: traced.served.metric("pointsman_trace_spans_total", outcome="dropped") > 0)
        await until(lambda: traced.served.metric("pointsman_trace_spans_total", outcome="failed") > 0, 10.0)
        assert traced.served.metric("pointsman_trace_spans_total", outcome="exported") == 0
        stopping = time.perf_counter()
    assert time.perf_counter() - stopping < 5.0


async def test_a_collector_that_hangs_does_not_hold_up_the_end(database_url: str, tmp_path: Path) -> None:
    with Collector(delay=3.0) as collector:
        traces = {"timeout_seconds": 30.0, "flush_seconds": 0.2}
        async with gateway_to(collector.url, always(Reply(SAID)), database_url, tmp_path, traces=traces) as traced:
            await traced.answer()
            stopping = time.perf_counter()
        assert time.perf_counter() - stopping < 2.5


async def test_headers_of_the_settings_reach_the_collector_at_its_path(database_url: str, tmp_path: Path) -> None:
    with Collector() as collector:
        traces = {"headers": {"Authorization": "Bearer of-the-collector"}, "service_name": "harbour"}
        async with gateway_to(collector.url, always(Reply(SAID)), database_url, tmp_path, traces=traces) as traced:
            await traced.answer()
    assert collector.requests[0]["path"] == "/v1/traces"
    assert collector.requests[0]["authorization"] == "Bearer of-the-collector"
    assert collector.spans[0].resource["service.name"] == "harbour"


async def test_probes_are_not_recorded(database_url: str, tmp_path: Path) -> None:
    with Collector() as collector:
        async with gateway_to(collector.url, always(Reply(SAID)), database_url, tmp_path) as traced:
            collector.spans.clear()
            assert (await traced.http.get("/healthz")).status_code == 200
            await traced.answer(SAMPLED)
    assert not [span for span in collector.spans if "health" in span.name]


async def test_an_upstream_works_below_our_span_and_in_one_trace_with_us(database_url: str, tmp_path: Path) -> None:
    """The upstream is another gateway, over HTTP by a contract and over gRPC by its own API."""
    with Collector() as collector:
        script, served_too = always(Reply(SAID)), {"contracts": ("plain",)}
        async with gateway_to(collector.url, script, database_url, tmp_path / "theirs", http=served_too) as theirs:
            for name, url in (
                ("plain", str(theirs.http.base_url)),
                ("pointsman", f"grpc://{theirs.served.target}"),
            ):
                section = {"url": url.rstrip("/"), "contract": name, "use": "standard", "retries": 0}
                settings = theirs.served.application.settings
                ours = settings_for(
                    settings.database.url.get_secret_value() if settings.database.url else "",
                    tmp_path / name,
                    upstream=section,
                    traces={"endpoint": collector.url, "ratio": 1.0, "service_name": name},
                )
                async with running(ours) as served:
                    asked = question(WHERE, route=STANDARD, request_id=new_request_id())
                    call = served.client.gateway.Answer(asked, timeout=30.0)
                    answered = await call
                    assert answered.answer_source == gateway_pb2.ANSWER_SOURCE_UPSTREAM
    for name, method in (("plain", "POST /ask"), ("pointsman", "pointsman.v1.GatewayService/StreamAnswer")):
        (call_of_ours,) = [
            span for span in collector.spans if span.kind == "client" and span.resource["service.name"] == name
            and span.name.startswith(method.split("/")[0])
        ]  # fmt: skip
        below = [span for span in collector.spans if span.parent_id == call_of_ours.span_id]
        assert [span.kind for span in below] == ["server"]
        assert below[0].resource["service.name"] == "pointsman"
        assert below[0].trace_id == call_of_ours.trace_id
        tree = of(call_of_ours.trace_id, collector)
        assert tree.above(below[0]) == [call_of_ours.name, "pointsman.run", RPC]
        assert not call_of_ours.failed
