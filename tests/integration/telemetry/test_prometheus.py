"""A real Prometheus scrapes a real gateway over loopback: what it then knows, and whether our queries run on it."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import yaml
from pointsman.client import Pointsman, question
from pointsman.v1 import gateway_pb2

from router.process.serving import open_server_process
from tests.integration.router.conftest import fill, settings_for
from tests.support.promql import PROMETHEUS, dashboard_queries, rules
from tests.support.registry import registered
from tests.support.tools import free_port, tool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ASKED = 3


class Server:
    """A running Prometheus and its API."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def api(self, path: str, **parameters: str) -> Any:  # noqa: ANN401 - JSON
        """The `data` of an answer; what was wrong where there is none."""
        response = await self._client.get(f"/api/v1/{path}", params=parameters)
        body = response.json()
        assert body["status"] == "success", body
        return body["data"]

    async def values(self, query: str) -> dict[frozenset[tuple[str, str]], float]:
        """An instant query's samples by their labels."""
        data = await self.api("query", query=query)
        return {frozenset(each["metric"].items()): float(each["value"][1]) for each in data["result"]}

    async def value(self, query: str) -> float:
        """The only sample of a query."""
        (found,) = (await self.values(query)).values()
        return found

    async def ready(self) -> bool:
        """Whether it answers."""
        try:
            return (await self._client.get("/-/ready")).status_code == 200
        except httpx2.TransportError:
            return False


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncIterator[Server]:
    """A Prometheus that scrapes the target five times a second and has our rules."""
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "1s"}
    config["rule_files"] = [str(PROMETHEUS / "rules" / "*.yml")]
    gateways = next(each for each in config["scrape_configs"] if each["job_name"] == "pointsman")
    config["scrape_configs"] = [gateways | {"static_configs": [{"targets": [target]}]}]
    path, port = folder / "prometheus.yml", free_port()
    path.write_text(yaml.safe_dump(config))
    process = await asyncio.create_subprocess_exec(
        tool("prometheus"), f"--config.file={path}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
        env={**os.environ, "GOMAXPROCS": "1"},
    )  # fmt: skip
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10.0) as client:
            server = Server(client)
            async with asyncio.timeout(60.0):
                while not await server.ready():
                    assert process.returncode is None
                    await asyncio.sleep(0.1)
            yield server
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(20.0):
            await process.wait()


async def test_a_prometheus_server_learns_every_metric_and_can_run_every_query(
    database_url: str, tmp_path: Path
) -> None:
    tool("prometheus")
    golden = tmp_path / "golden.jsonl"
    golden.write_text('{"id": "pump", "question": "Where is the spare bilge pump kept?", "supporting_ids": ["pump"]}\n')
    settings = settings_for(
        database_url, tmp_path / "data", http={"port": 0}, canary={"file": str(golden), "interval_seconds": 0.2}
    )
    async with open_server_process(settings) as gateway:
        async with Pointsman(gateway.target) as client:
            await fill(client)
            for _ in range(ASKED):
                await client.answer(question("When is the lantern lit?", route=gateway_pb2.ROUTE_STANDARD))
                await client.answer(question("Who is the deputy?", route=gateway_pb2.ROUTE_AGENTIC))
        async with prometheus(tmp_path, f"127.0.0.1:{gateway.metrics_port}") as server:
            async with asyncio.timeout(30.0):
                seen = 'up{job="pointsman"} == 1 and on () (count(pointsman_canary_ok == 1))'
                while not await server.values(seen):  # noqa: ASYNC110 - another process has no event to offer
                    await asyncio.sleep(0.2)
            await _knows_types_and_texts(server)
            await _counts_what_was_asked(server)
            await _runs(server)
            loaded = [rule for group in (await server.api("rules"))["groups"] for rule in group["rules"]]
            assert len(loaded) == len(rules())
            assert not [rule["lastError"] for rule in loaded if rule.get("lastError")]


async def _knows_types_and_texts(server: Server) -> None:
    known = {each["metric"].removesuffix("_total"): each for each in await server.api("targets/metadata")}
    for metric in registered().values():
        found = known[metric.name.removesuffix("_total")]
        assert (found["type"], found["help"]) == (metric.kind, metric.about)


async def _counts_what_was_asked(server: Server) -> None:
    service = 'grpc_service="pointsman.v1.GatewayService", grpc_method="Answer"'
    assert await server.value(f'grpc_server_handled_total{{{service}, grpc_code="OK"}}') == 2 * ASKED
    assert await server.value("sum(grpc_server_handling_seconds_count{%s})" % service) == 2 * ASKED  # noqa: UP031
    for route in ("standard", "agentic"):
        assert await server.value(f'sum(pointsman_answers_total{{route="{route}"}})') >= ASKED
        assert await server.value(f'pointsman_answer_seconds_bucket{{route="{route}", le="+Inf"}}') >= ASKED
        assert await server.value(f'pointsman_tenant_requests_total{{route="{route}", tenant="default"}}') >= ASKED
    assert await server.value("pointsman_inflight_requests") <= 1  # the canary's
    assert await server.value('pointsman_dependency_up{dependency="database"}') == 1
    assert await server.value("pointsman_agentic_steps_count") >= ASKED


async def _runs(server: Server) -> None:
    for where, expr in [*dashboard_queries(), *((rule.name, rule.expr) for rule in rules())]:
        try:
            await server.api("query", query=expr)
        except AssertionError as error:
            pytest.fail(f"{where}: {expr}: {error}")
