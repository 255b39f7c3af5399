"""What clients do to a server: too much, too slowly, malformed, or leaving before the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import pytest_asyncio

from router.http.app import HttpApp, caller, own_paths
from router.http.asking import HttpParts
from router.settings import BadSettings
from standard.domain.event import TokenEmitted
from tests.integration.http.conftest import WHERE, serving, settings_for
from tests.support.llm_rig import until_gone
from tests.support.model_server import Hang, ModelServer, Reply, always
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, MutableMapping
    from pathlib import Path

    from standard.domain.event import Event
    from standard.domain.question import Question
    from tests.integration.http.conftest import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT = {"model": "pointsman-standard", "messages": [{"role": "user", "content": WHERE}]}
QUERY = {"question": WHERE, "route": "standard"}


@asynccontextmanager
async def with_model(
    model: ModelServer, database_url: str, folder: Path, **sections: dict[str, Any]
) -> AsyncIterator[Served]:
    llm = {"base_url": model.base_url, "model": "m", "retries": 0}
    async with serving(settings_for(database_url, folder, llm=llm, **sections)) as served:
        yield served


ASKING_GET = """
name = "get"
[[route]]
method = "GET"
path = "/ask"
[route.request]
question = "@query.q"
[route.response]
text = "{answer}"
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asking_get(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A server with a path that asks by GET."""
    folder = tmp_path_factory.mktemp("get")
    contract = folder / "get.toml"
    contract.write_text(ASKING_GET)
    async with serving(settings_for(module_database_url, folder, http={"contracts": (str(contract),)})) as opened:
        yield opened


def answers_of(served: Served) -> float:
    """How many questions were answered so far."""
    families = served.application.metrics.registry.collect()
    samples = [sample for family in families for sample in family.samples]
    return sum(sample.value for sample in samples if sample.name == "pointsman_answers_total")


async def raw(served: Served, *pieces: bytes, pause: float = 0.0, seconds: float = 10.0) -> bytes:
    """Send bytes as they are and read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    try:
        async with asyncio.timeout(seconds):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
            return await reader.read()
    finally:
        writer.close()


def head(path: str, *headers: str, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", "connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"null", b'{"a": NaN}', b'{"a": "\xff"}', b'{"a": "\\ud800"}', b"[" * 100_000]
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/query", "/v1/vector_stores/default/search"])
async def test_what_is_no_json_object_is_a_400(served: Served, path: str, body: bytes) -> None:
    response = await served.client.post(path, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    error = response.json()["error"]
    assert "body" in (error.get("param"), error.get("field"))


async def test_a_bad_text_of_the_history_is_named_by_its_place(served: Served) -> None:
    history = [{"role": "user", "text": "Fine."}, {"role": "user", "text": 5}]
    refused = await served.post("/query", QUERY | {"history": history})
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "history[1].text")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
async def test_another_content_type_is_a_415(served: Served, content_type: str) -> None:
    response = await served.client.post("/query", content=b"{}", headers={"content-type": content_type})
    assert response.status_code == 415
    packed = await served.client.post("/query", content=b"{}", headers={"content-encoding": "gzip"})
    assert packed.status_code == 415


async def test_a_body_of_twenty_megabytes_is_a_413_that_the_client_gets_to_read(served: Served) -> None:
    large = json.dumps({"question": "x" * 20_000_000}).encode()
    response = await served.client.post("/query", content=large, headers={"content-type": "application/json"})
    assert response.status_code == 413
    assert response.json()["error"]["reason"] == "BODY_TOO_LARGE"

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b" " * 100_000

    chunked = await served.client.post("/v1/chat/completions", content=pieces())
    assert chunked.status_code == 413
    assert chunked.json()["error"]["type"] == "invalid_request_error"
    announced = await raw(served, head("/query", "content-length: 99999999999"))
    assert b" 413 " in announced.split(b"\r\n")[0]
    polite = await raw(served, head("/query", "content-length: 20000000", "expect: 100-continue"))
    assert b" 413 " in polite.split(b"\r\n")[0]


async def test_slow_senders_are_given_up_on(module_database_url: str, tmp_path: Path) -> None:
    settings = settings_for(module_database_url, tmp_path, http={"client_timeout_seconds": 0.5})
    async with serving(settings) as served:
        at = time.perf_counter()
        said = await raw(served, head("/query", "content-length: 100"), b"{", pause=0.1)
        assert b" 408 " in said.split(b"\r\n")[0]
        assert await raw(served, b"POST /query HT") == b""  # no head, no reply
        assert await raw(served) == b""
        assert time.perf_counter() - at < 5.0
        drip = [b"POST /query HTTP/1.1\r\n", *[b"x: y\r\n"] * 10]
        with contextlib.suppress(ConnectionError):  # cut off while it sends
            assert await raw(served, *drip, pause=0.2) == b""
        # A kept connection is no way around it.
        again = head("/healthz", method="GET").replace(b"connection: close\r\n", b"")
        said = await raw(served, again, b"GET /hea")
        assert said.count(b"HTTP/1.1 200") == 1


async def test_heads_are_bounded(served: Served) -> None:
    for long in (b"x" * 100_000, b"/" + b"a" * 100_000):
        said = await raw(served, b"GET /healthz HTTP/1.1\r\nlong: " + long + b"\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 400")
    many = b"".join(b"h%d: v\r\n" % number for number in range(20_000))
    # Cut off while it sends: it may see the reason or only the broken connection.
    try:
        assert (await raw(served, b"GET /healthz HTTP/1.1\r\n" + many + b"\r\n")).startswith(b"HTTP/1.1 400")
    except ConnectionError:
        assert (await served.client.get("/healthz")).status_code == 200
    assert (await raw(served, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")).startswith(b"HTTP/1.1 400")
    assert (await raw(served, b"GET /caf\xc3\xa9 HTTP/1.1\r\nhost: x\r\n\r\n"))[:9] == b"HTTP/1.1 "


async def test_no_header_of_a_request_gets_into_one_of_the_reply(served: Served) -> None:
    for given in ("a b", "x" * 129, "\xe9", "a\tb"):
        said = await raw(served, head("/v1/models", f"x-request-id: {given}", method="GET"))
        assert b"x-request-id" not in said
    body = json.dumps(QUERY | {"session_id": "a\r\nset-cookie: b=c"}).encode()
    said = await raw(served, head("/query", f"content-length: {len(body)}"), body)
    assert b" 400 " in said.split(b"\r\n")[0]
    assert b"\r\nset-cookie" not in said.lower()
    named = await served.client.get("/v1/models", headers={"x-request-id": "abc"})
    assert named.headers["x-request-id"] == "abc"


async def test_paths_and_methods_that_are_not_there(served: Served) -> None:
    openai_shaped = await served.client.post("/v1/completions", json={})
    assert (openai_shaped.status_code, openai_shaped.json()["error"]["code"]) == (404, "unknown_url")
    plain = await served.client.get("/nothing/here")
    assert (plain.status_code, plain.json()["error"]["reason"]) == (404, "NO_SUCH_PATH")
    wrong = await served.client.get("/query")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert (await served.client.delete("/v1/models/pointsman")).status_code == 405
    assert (await served.client.head("/healthz")).status_code == 200


async def test_health_and_readiness(served: Served) -> None:
    assert (await served.client.get("/healthz")).json() == {"status": "ok"}
    ready = await served.client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["dependencies"]["database"] is True


async def test_bytes_leave_as_they_come(module_database_url: str, tmp_path: Path) -> None:
    """Each token of the model reaches the client before the model sends its next: nothing is held back."""
    words = tuple(f"word{number} " for number in range(12))
    async with (
        ModelServer(always(Reply(pieces=(*words, "[S1]."), token_delay=0.05))) as model,
        with_model(model, module_database_url, tmp_path) as served,
        served.client.stream("POST", "/query", json=QUERY, headers={"accept": "text/event-stream"}) as response,
    ):
        arrived = [time.perf_counter() async for line in response.aiter_lines() if line.startswith("event: token")]
    gaps = [after - before for before, after in pairwise(arrived)]
    assert len(arrived) >= 10
    assert arrived[-1] - arrived[0] > 0.3  # spread over the model's own time, not in one heap at the end
    assert sorted(gaps)[len(gaps) // 2] > 0.02


async def test_a_client_that_leaves_stops_the_work(module_database_url: str, tmp_path: Path) -> None:
    """The model server's own socket closes: nobody pays for an answer without a reader."""
    async with (
        ModelServer(always(Reply(pieces=("First ", "second ", "third ", "fourth."), token_delay=0.3))) as model,
        with_model(model, module_database_url, tmp_path) as served,
    ):
        for path, body in (("/v1/chat/completions", CHAT | {"stream": True}), ("/query", QUERY)):
            asked = len(model.requests)
            headers = {"accept": "text/event-stream"}
            async with served.client.stream("POST", path, json=body, headers=headers) as response:
                async for line in response.aiter_lines():
                    if '"First' in line:
                        break
            await until_gone(model.requests[asked], 2.0)


async def test_a_client_may_leave_at_any_moment(module_database_url: str, tmp_path: Path) -> None:
    """No moment is too early: before the first event, while the model is being asked, between two of its words."""
    async with (
        ModelServer(always(Reply(pieces=("First ", "second ", "third."), token_delay=0.5))) as model,
        with_model(model, module_database_url, tmp_path) as served,
    ):
        body = json.dumps(CHAT | {"stream": True}).encode()
        request = head("/v1/chat/completions", f"content-length: {len(body)}") + body
        for milliseconds in range(0, 60, 5):
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(request)
            await asyncio.sleep(milliseconds / 1000)
            writer.transport.abort()
        registry = served.application.metrics.registry
        await until(lambda: registry.get_sample_value("pointsman_inflight_requests") == 0.0)
        for asked in model.requests:
            await until_gone(asked)
            assert not asked.finished


async def test_a_client_that_leaves_a_unary_call_stops_the_work(module_database_url: str, tmp_path: Path) -> None:
    async with (
        ModelServer(always(Hang())) as model,
        with_model(model, module_database_url, tmp_path) as served,
    ):
        for path, body in (("/v1/chat/completions", CHAT), ("/query", QUERY)):
            asked = len(model.requests)
            call = asyncio.create_task(served.client.post(path, json=body))
            await until(lambda before=asked: len(model.requests) > before)  # type: ignore[misc]
            call.cancel()
            await asyncio.wait([call])
            await until_gone(model.requests[asked], 2.0)
        registry = served.application.metrics.registry
        await until(lambda: registry.get_sample_value("pointsman_inflight_requests") == 0.0)


async def test_a_silent_line_carries_heartbeats(module_database_url: str, tmp_path: Path) -> None:
    async with (
        ModelServer(always(Reply("It is in the shed [S1].", first_token_delay=0.7))) as model,
        with_model(model, module_database_url, tmp_path, http={"heartbeat_seconds": 0.15}) as served,
    ):
        for path, body in (("/v1/chat/completions", CHAT | {"stream": True}), ("/query", QUERY)):
            response = await served.post(path, body, accept="text/event-stream")
            lines = response.text.splitlines()
            assert lines.count(": heartbeat") >= 3
            assert "shed" in response.text
        ndjson = await served.post("/query", QUERY, accept="application/x-ndjson")
        assert all(json.loads(line) for line in ndjson.text.splitlines())


async def test_a_client_that_does_not_read_is_given_up_on(module_database_url: str, tmp_path: Path) -> None:
    flood = Reply(pieces=tuple("word " * 200 for _ in range(3000)), token_delay=0.0)
    settings = {"http": {"client_timeout_seconds": 0.5}}
    async with (
        ModelServer(always(flood)) as model,
        with_model(model, module_database_url, tmp_path, **settings) as served,
    ):
        body = json.dumps(CHAT | {"stream": True}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
        writer.write(head("/v1/chat/completions", f"content-length: {len(body)}") + body)
        await reader.readline()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        registry = served.application.metrics.registry
        await until(lambda: registry.get_sample_value("pointsman_inflight_requests") == 0.0, 20.0)
        writer.transport.abort()


async def test_what_fails_within_a_stream_ends_it_in_the_shape_of_the_api(
    module_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(settings_for(module_database_url, tmp_path)) as served:
        real = served.application.gateway.stream

        async def breaking(question: Question) -> AsyncIterator[Event]:
            async for event in real(question):
                yield event
                raise RuntimeError("secret of the house")

        monkeypatch.setattr(served.application.gateway, "stream", breaking)
        chat = await served.post("/v1/chat/completions", CHAT | {"stream": True})
        assert chat.status_code == 200
        last = [line for line in chat.text.splitlines() if line.startswith("data: ")][-1]
        assert json.loads(last[6:])["error"]["type"] == "server_error"
        assert "[DONE]" not in chat.text
        plain = await served.post("/query", QUERY, accept="application/x-ndjson")
        assert json.loads(plain.text.splitlines()[-1])["error"]["reason"] == "INTERNAL"
        assert "secret" not in chat.text + plain.text


async def test_the_server_stops_in_time_and_tells_those_who_wait(module_database_url: str, tmp_path: Path) -> None:
    async with ModelServer(always(Hang())) as model:
        async with with_model(model, module_database_url, tmp_path) as served:
            url = served.url
            outside = httpx2.AsyncClient(base_url=url, timeout=30.0)
            call = asyncio.create_task(outside.post("/query", json=QUERY))
            await until(lambda: model.requests)
            at = time.perf_counter()
        assert time.perf_counter() - at < 10.0
        response = await call
        assert response.status_code == 503
        await outside.aclose()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1.evil.example:8080"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[::1"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),
        ({"origin": "http://localhost:3000", "sec-fetch-site": "cross-site"}, 200),
        ({"origin": "http://127.0.0.1:8080"}, 200),
        ({}, 200),
    ],
)
async def test_pages_of_other_sites_may_not_call(served: Served, headers: dict[str, str], status: int) -> None:
    response = await served.client.get("/v1/models", headers=headers)
    assert response.status_code == status
    assert response.headers["x-content-type-options"] == "nosniff"
    if status == 403:
        assert response.json()["error"]["type"] == "permission_error"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"host": "rebound.example:8080", "sec-fetch-site": "same-origin"}, 403),
        ({"host": "rebound.example"}, 403),
        ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, 200),
        ({"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, 200),
        ({}, 200),
    ],
)
async def test_no_page_has_a_question_asked_by_a_frame_a_link_or_a_name_of_its_own(
    asking_get: Served, headers: dict[str, str], status: int
) -> None:
    before = answers_of(asking_get)
    response = await asking_get.client.get("/ask", params={"q": WHERE}, headers=headers)
    assert response.status_code == status
    assert answers_of(asking_get) - before == (status == 200)


async def test_every_path_but_those_of_health_answers_to_its_own_names_alone(served: Served) -> None:
    for path in ("/", "/v1/models", "/nothing/here", "/console/api/about"):
        for host in ("rebound.example", "localhost.example:80", "127.0.0.1.example", ""):
            refused = await raw(served, head(path, method="GET").replace(b"host: localhost", f"host: {host}".encode()))
            assert refused.startswith(b"HTTP/1.1 403"), (path, host)
            assert b"http.hosts" in refused
    for path in ("/healthz", "/readyz"):
        assert (await served.client.get(path, headers={"host": "10.1.2.3:8080"})).status_code == 200
    posted = await served.client.post("/query", json=QUERY, headers={"host": "rebound.example"})
    assert posted.status_code == 403
    for host in ("127.0.0.1", "[::1]:8080", "LOCALHOST.", "a.localhost:1"):
        assert (await served.client.get("/v1/models", headers={"host": host})).status_code == 200
    # A browser never leaves it out.
    said = await raw(served, b"GET /v1/models HTTP/1.0\r\n\r\n")
    assert b" 200 " in said.split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("section", "auth", "status"),
    [
        ({"hosts": ("Points.example",)}, "none", 200),
        ({"hosts": ("points.example:8080",)}, "none", 200),
        ({"origins": ("https://points.example",)}, "none", 200),
        ({"hosts": ("*",)}, "none", 200),
        ({"hosts": ("other.example",)}, "none", 403),
        ({}, "none", 403),
        ({}, "keys", 401),
    ],
)
async def test_names_that_are_allowed_and_any_where_keys_are_asked_for(
    module_database_url: str, tmp_path: Path, section: dict[str, Any], auth: str, status: int
) -> None:
    async with serving(settings_for(module_database_url, tmp_path, http=section, auth={"mode": auth})) as served:
        response = await served.client.get("/v1/models", headers={"host": "points.example"})
        assert response.status_code == status


async def test_a_client_that_takes_nothing_of_an_error_ends_without_a_traceback(served: Served) -> None:
    """uvicorn would log whatever leaves the application."""
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/nothing", "headers": [(b"host", b"localhost")]}
    scope |= {"query_string": b"", "root_path": "", "path_params": {}}
    tried: list[str] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        tried.append(message["type"])
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    application = served.application
    settings = application.settings
    hasty = settings.model_copy(update={"http": settings.http.model_copy(update={"client_timeout_seconds": 0.05})})

    async def ready() -> tuple[bool, dict[str, bool]]:
        return True, {}

    parts = HttpParts(application.gateway, application.retriever, application.embed, hasty, caller, ready)
    async with asyncio.timeout(5.0):
        await HttpApp(parts, own_paths())(scope, receive, send)
    assert tried == ["http.response.start", "http.response.body"]


async def test_an_allowed_origin_may_call(module_database_url: str, tmp_path: Path) -> None:
    settings = settings_for(module_database_url, tmp_path, http={"origins": ("https://intranet.example",)})
    async with serving(settings) as served:
        allowed = await served.client.get("/v1/models", headers={"origin": "https://intranet.example"})
        assert allowed.status_code == 200
        assert (await served.client.get("/v1/models", headers={"origin": "https://x.example"})).status_code == 403


async def test_an_event_is_with_the_client_within_five_milliseconds(
    module_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the event's coming out of the gateway to its line in the client; the middle of many, on a busy machine."""
    words = tuple(f"word{number} " for number in range(40))
    left: list[float] = []
    async with (
        ModelServer(always(Reply(pieces=(*words, "[S1]."), token_delay=0.02))) as model,
        with_model(model, module_database_url, tmp_path) as served,
    ):
        real = served.application.gateway.stream

        async def noting(question: Question) -> AsyncIterator[Event]:
            async for event in real(question):
                if isinstance(event.body, TokenEmitted):
                    left.append(time.perf_counter())
                yield event

        monkeypatch.setattr(served.application.gateway, "stream", noting)
        async with served.client.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as response:
            lines = response.aiter_lines()
            arrived = [time.perf_counter() async for line in lines if '"delta":{"content":"word' in line]
    delays = sorted(there - here for here, there in zip(left, arrived, strict=False))
    assert len(delays) >= 30
    assert delays[len(delays) // 2] < 0.005


async def test_an_address_that_others_reach_or_that_is_taken_stops_the_start(
    served: Served, module_database_url: str, tmp_path: Path
) -> None:
    for section, told in (({"host": "0.0.0.0"}, "http.host"), ({"port": served.port}, "http.port")):
        with pytest.raises(BadSettings, match=told):
            async with serving(settings_for(module_database_url, tmp_path, http=section)):
                pass
