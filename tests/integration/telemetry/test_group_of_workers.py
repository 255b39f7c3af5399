"""Two workers as operators run them: traces of both, exemplars in the view of the group, logs that name their call."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import grpc
from pointsman.client import new_request_id, question
from pointsman.v1 import gateway_pb2, gateway_pb2_grpc
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.chaos.gateway_process import ROOT, WHERE, gateway
from tests.support.collector import Collector
from tests.support.model_server import ModelServer, Reply, always

if TYPE_CHECKING:
    from pathlib import Path

SAID = "It is in the shed at Alder Wharf [S1]."
RPC = "pointsman.v1.GatewayService/Answer"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
KEY = "sk-of-the-model-0123456789abcdef"
EXEMPLIFIED = {
    "pointsman_answer_seconds", "pointsman_first_token_seconds", "pointsman_first_event_seconds",
    "pointsman_llm_request_seconds", "pointsman_retrieval_seconds", "pointsman_routing_seconds",
    "grpc_server_handling_seconds", "pointsman_http_request_seconds",
}  # fmt: skip


def scraped(port: object) -> str:
    """The metrics as OpenMetrics."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"accept": OPENMETRICS})
    with urllib.request.urlopen(request, timeout=10) as response:
        assert response.headers["content-type"].startswith("application/openmetrics-text")
        return str(response.read().decode())


def exemplars(text: str) -> dict[str, set[str]]:
    """Trace ids of exemplars by the metric's name."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            if sample.exemplar is not None:
                found.setdefault(family.name, set()).add(sample.exemplar.labels["trace_id"])
    return found


def posted(url: str, body: dict[str, Any]) -> str:
    """Ask over HTTP; the trace id."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(url + "/query", data=data, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.status == 200
        return str(response.headers["x-trace-id"])


async def commanded(*arguments: str) -> str:
    """What a command says on stdout."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "router.cli", *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def test_two_workers_send_their_traces_and_the_group_shows_exemplars_of_both(tmp_path: Path) -> None:
    with Collector() as collector:
        settings = {
            "TRACES__ENDPOINT": collector.url,
            "TRACES__RATIO": "1",
            "LLM__API_KEY": KEY,
        }
        async with (
            ModelServer(always(Reply(SAID)), api_key=KEY) as model,
            gateway(tmp_path, "--workers", "2", model=model, settings=settings) as served,
        ):
            asked: dict[str, str] = {}
            for number in range(40):
                # Channels of the same address and options share a connection; these do not: either worker gets some.
                options = (("grpc.use_local_subchannel_pool", 1), ("grpc.primary_user_agent", f"caller-{number}"))
                async with grpc.aio.insecure_channel(served.target, options=options) as channel:
                    name = new_request_id()
                    request = question(WHERE, route=gateway_pb2.ROUTE_STANDARD, request_id=name)
                    call = gateway_pb2_grpc.GatewayServiceStub(channel).Answer(request, timeout=30.0)
                    await call
                    trailing = {str(key): str(value) for key, value in await call.trailing_metadata() or ()}
                    asked[name] = trailing["x-trace-id"]
            over_http = await asyncio.to_thread(posted, served.http_url, {"question": WHERE, "route": "standard"})
            last = next(reversed(asked))
            shown = await commanded("trace", last, "--server", served.target)
            told = json.loads(await commanded("trace", last, "--server", served.target, "--json"))
            text = await asyncio.to_thread(scraped, served.note["metrics_port"])
        log = (tmp_path / "log").read_text()
    assert asked[last] in shown
    assert told["trace_ids"] == [asked[last]]
    calls = collector.named(RPC)
    assert {span.trace_id for span in calls} >= set(asked.values())
    assert len({span.resource["service.instance.id"] for span in calls}) == 2
    found = exemplars(text)
    assert set(found) >= EXEMPLIFIED
    assert found["grpc_server_handling_seconds"] & set(asked.values())
    assert found["pointsman_http_request_seconds"] == {over_http}

    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert KEY not in log
    for told in ("bilge", "in the shed", WHERE):
        assert told not in log
    ended = {line["request_id"]: line for line in lines if line["event"] == "call" and line["method"] == RPC}
    assert set(ended) >= set(asked)
    spans = {span.trace_id: span for span in calls}
    for name, trace_id in asked.items():
        line = ended[name]
        assert line["trace_id"] == trace_id
        assert line["span_id"] == spans[trace_id].span_id
        assert (line["status"], line["route"], line["outcome"]) == ("OK", "standard", "answered")
        assert 0 < line["seconds"] < 30
    (query,) = [line for line in lines if line["event"] == "call" and line["method"] == "POST /query"]
    assert query["trace_id"] == over_http
    assert query["status"] == "200"
    assert not [line for line in lines if "Health" in str(line.get("method", ""))]
