"""The proxy of deploy/proxy, a real nginx before a real gateway: who gets through, and how streams do."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
import httpx2
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pointsman.client import Pointsman, question
from pointsman.v1 import admin_pb2, gateway_pb2

from router.process.serving import open_server_process
from tests.integration.router.conftest import fill, settings_for
from tests.support.model_server import ModelServer, Reply, always
from tests.support.tools import ROOT, free_port, tool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CONFIG = ROOT / "deploy" / "proxy" / "nginx.conf"
WHERE = "Where is the spare bilge pump kept?"
KEYS = {"caller": "c" * 64, "admin": "a" * 64}


class Proxy:
    """Ports of a running proxy."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.target = f"127.0.0.1:{ports['50051']}"
        self.http = f"http://127.0.0.1:{ports['8080']}"
        self.metrics = f"http://127.0.0.1:{ports['9464']}"

    def client(self, who: str | None) -> Pointsman:
        return Pointsman(self.target, token=KEYS.get(who or "", who or ""), timeout_seconds=20.0)


@asynccontextmanager
async def nginx(folder: Path, moved: dict[str, int]) -> AsyncIterator[Proxy]:
    """The shipped configuration, its ports moved to free ones, its paths below the folder."""
    ports = moved | {port: free_port() for port in ("50051", "8080", "9464")}
    text = re.sub(r"(?<=127\.0\.0\.1:)\d+|(?<=listen )\d+", lambda match: str(ports[match[0]]), CONFIG.read_text())
    text = text.replace("/tmp/", f"{folder}/").replace("/etc/pointsman/", f"{folder}/")
    text = re.sub(r"listen (\d+)", r"listen 127.0.0.1:\1", text)
    (folder / "keys.conf").write_text("".join(f'"Bearer {key}" {who};\n' for who, key in KEYS.items()))
    path = folder / "nginx.conf"
    path.write_text(text)
    process = await asyncio.create_subprocess_exec(
        tool("nginx"), "-c", str(path), "-p", str(folder), "-e", "stderr", "-g", "daemon off;"
    )
    proxy = Proxy(ports)
    try:
        async with asyncio.timeout(20.0), httpx2.AsyncClient() as client:
            while True:
                assert process.returncode is None
                try:
                    await client.get(f"{proxy.http}/healthz")
                    break
                except httpx2.TransportError:
                    await asyncio.sleep(0.05)
        yield proxy
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(20.0):
            await process.wait()


@pytest_asyncio.fixture
async def proxy(database_url: str, tmp_path: Path) -> AsyncIterator[Proxy]:
    """A proxy before a gateway with a slow model and the small corpus."""
    tool("nginx")
    words = Reply("It is in the shed at Alder Wharf [S1]. The dockmaster signs for it [S1].", token_delay=0.05)
    async with ModelServer(always(words)) as model:
        llm = {"base_url": model.base_url, "model": "m"}
        settings = settings_for(database_url, tmp_path / "data", http={"port": 0}, llm=llm)
        async with open_server_process(settings) as gateway:
            assert gateway.http_url is not None
            behind = {"50061": gateway.port, "8090": int(gateway.http_url.rsplit(":", 1)[1])}
            async with nginx(tmp_path, behind | {"9474": gateway.metrics_port}) as running:
                async with running.client("caller") as client:
                    await fill(client)
                yield running


async def _code(proxy: Proxy, who: str | None) -> grpc.StatusCode:
    async with proxy.client(who) as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.gateway.Answer(question(WHERE), metadata=client._metadata, timeout=10.0)
    code: grpc.StatusCode = caught.value.code()
    return code


async def test_nobody_gets_through_without_a_key_and_everybody_with_one(proxy: Proxy) -> None:
    assert await _code(proxy, None) is grpc.StatusCode.UNAUTHENTICATED
    assert await _code(proxy, "wrong") is grpc.StatusCode.UNAUTHENTICATED
    asked = question(WHERE, route=gateway_pb2.ROUTE_STANDARD)
    async with proxy.client("caller") as client:
        assert "shed" in (await client.answer(asked)).answer
    async with httpx2.AsyncClient(base_url=proxy.http, timeout=20.0) as http:
        assert (await http.get("/v1/models")).status_code == 401
        assert (await http.get("/v1/models", headers={"authorization": "Bearer x"})).status_code == 401
        allowed = await http.get("/v1/models", headers={"authorization": f"Bearer {KEYS['caller']}"})
        assert allowed.status_code == 200


async def test_only_an_administrator_administers(proxy: Proxy) -> None:
    async with proxy.client("caller") as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.admin.GetRoutingPolicy(admin_pb2.GetRoutingPolicyRequest(), metadata=client._metadata)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    async with proxy.client("admin") as client:
        await client.admin.GetRoutingPolicy(
            admin_pb2.GetRoutingPolicyRequest(), metadata=client._metadata, timeout=10.0
        )


async def test_the_console_is_an_administrators_by_whatever_name_and_path_it_is_asked(proxy: Proxy) -> None:
    paths = ("/console/api/runs", "/%63onsole/api/runs", "/x/../console/api/runs", "/console/./api/runs")
    async with httpx2.AsyncClient(base_url=proxy.http, timeout=20.0) as http:
        assert "pointsman console" in (await http.get("/")).text
        assert (await http.get("/console/main.js")).status_code == 200
        for path in paths:
            assert (await http.get(path, headers={"host": "localhost"})).status_code == 401, path
            headers = {"host": "localhost", "authorization": f"Bearer {KEYS['caller']}"}
            assert (await http.get(path, headers=headers)).status_code == 403, path
        write = {"x-pointsman-console": "1", "authorization": f"Bearer {KEYS['caller']}"}
        body = {"threshold": 0.0, "expected_version": 0}
        assert (await http.put("/console/api/threshold", json=body, headers=write)).status_code == 403
        admin = {"authorization": f"Bearer {KEYS['admin']}"}
        assert (await http.get("/console/api/runs", headers=admin)).status_code == 200


async def test_probes_and_scrapes_need_no_key_and_see_nothing_else(proxy: Proxy) -> None:
    async with grpc.aio.insecure_channel(proxy.target) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10.0)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    async with httpx2.AsyncClient(timeout=20.0) as http:
        assert (await http.get(f"{proxy.http}/readyz")).json()["status"] == "ready"
        assert "pointsman_inflight_requests" in (await http.get(f"{proxy.metrics}/metrics")).text
        assert (await http.get(f"{proxy.metrics}/")).status_code == 404


async def test_a_stream_arrives_piece_by_piece_and_a_reader_who_leaves_ends_the_run(proxy: Proxy) -> None:
    now = asyncio.get_running_loop().time
    async with proxy.client("caller") as client:
        times = [(now(), each.WhichOneof("body")) async for each in client.stream(question(WHERE, threshold=1.0))]
        tokens = [at for at, kind in times if kind == "token"]
        assert len(tokens) > 1
        assert tokens[-1] - tokens[0] > 0.2  # the model takes as long between its words
        stream = client.stream(question(WHERE, threshold=1.0))
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
    async with httpx2.AsyncClient() as http, asyncio.timeout(10.0):
        while "pointsman_inflight_requests 0.0" not in (await http.get(f"{proxy.metrics}/metrics")).text:  # noqa: ASYNC110 - it is another process's
            await asyncio.sleep(0.05)
