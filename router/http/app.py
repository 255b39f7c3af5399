"""The ASGI application: which path is served by what, and the one place where errors become responses."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog
from starlette.requests import Request
from starlette.routing import Match, Route

from router.access.certified import PEER
from router.access.identity import Identity
from router.http import openai_catalogue, openai_chat, query
from router.http.asking import Call
from router.http.browsers import refuse_other_names, refuse_other_sites
from router.http.contract.load import load_contracts
from router.http.contract.serve import failer, handler
from router.http.errors import MethodNotAllowed, NoSuchPath, openai_error, plain_error, to_problem
from router.http.observe import BROKEN, GONE, ObserveHttp
from router.http.wire import JSON, ClientGone, Reply, read_json, request_id_of, to_json_bytes
from router.settings import BadSettings
from router.telemetry.calls import named
from standard.domain.errors import Unauthenticated, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.types import Receive, Scope, Send

    from router.http.asking import HttpParts
    from router.http.errors import Problem

    Handler = Callable[[HttpParts, Call], Awaitable[None]]
    ErrorShape = Callable[[Problem], dict[str, Any]]

CALLER = "pointsman.caller"
"""Where the scope of a call holds the Identity of who makes it."""
_log = structlog.get_logger("pointsman.http")


@dataclass(frozen=True, slots=True)
class Served:
    """A path and method, what handles it, and how it tells of errors.

    `reads` says whether it takes a JSON body, `open` whether it needs no key, `probe` whether it tells only of health
    and answers to any name, `links` whether links and frames of other sites may lead to it: not where it asks.
    `facade` is whose path it is, for those who count. With `counts` a call is one of its tenant's requests; without,
    the handler reads the body and tells the gate how many it is.
    """

    method: str
    path: str
    handle: Handler
    fail: Callable[[Call, Problem], Awaitable[None]]
    reads: bool = True
    open: bool = False
    probe: bool = False
    links: bool = True
    facade: str = "console"
    counts: bool = True


async def fail_openai(call: Call, problem: Problem) -> None:
    """An error in OpenAI's shape."""
    await _fail(call, problem, openai_error(problem))


async def fail_plain(call: Call, problem: Problem) -> None:
    """An error in our own shape."""
    await _fail(call, problem, plain_error(problem))


async def _fail(call: Call, problem: Problem, body: dict[str, Any]) -> None:
    headers = list(problem.headers)
    if call.request_id:
        headers.append(("x-request-id", call.request_id))
    await call.reply.whole(problem.status, to_json_bytes(body), JSON, headers)


async def _alive(_parts: HttpParts, call: Call) -> None:
    await call.reply.whole(200, b'{"status":"ok"}', JSON)


async def _ready(parts: HttpParts, call: Call) -> None:
    serving, up = await parts.ready()
    body = {"status": "ready" if serving else "not ready", "dependencies": dict(up)}
    await call.reply.whole(200 if serving else 503, to_json_bytes(body), JSON)


def own_paths() -> list[Served]:
    """What is served whatever the settings say."""
    return [
        Served("POST", "/v1/chat/completions", openai_chat.chat_completions, fail_openai, facade="openai"),
        Served("GET", "/v1/models", openai_catalogue.list_models, fail_openai, reads=False, facade="openai"),
        Served("GET", "/v1/models/{model:path}", openai_catalogue.get_model, fail_openai, reads=False, facade="openai"),
        Served(
            "POST", "/v1/vector_stores/{id}/search", openai_catalogue.search_vector_store, fail_openai, facade="openai"
        ),
        Served("POST", "/query", query.query, fail_plain, facade="query"),
        Served("GET", "/healthz", _alive, fail_plain, reads=False, open=True, probe=True, facade="health"),
        Served("GET", "/readyz", _ready, fail_plain, reads=False, open=True, probe=True, facade="health"),
    ]


def served_paths(contracts: Sequence[str], console: Sequence[Served] = ()) -> list[Served]:
    """Our own paths, the console's and those of contracts; BadSettings for a contract that is wrong or collides."""
    served = [*own_paths(), *console]
    taken = {(each.method, shape_of(each.path)): "the gateway itself" for each in served}
    for contract in load_contracts(contracts):
        if not contract.routes:
            raise BadSettings([f"{contract.file}: has no [[route]] to serve; it describes an upstream over gRPC"])
        fail = failer(contract)
        for index, route in enumerate(contract.routes):
            place = (route.method, shape_of(route.path))
            if place in taken:
                problem = f"{route.method} {route.path} is served by {taken[place]}"
                raise BadSettings([f"{contract.file}: route[{index}].path: {problem}; choose another"])
            taken[place] = contract.file
            one = route.batch is None
            served.append(
                Served(
                    route.method,
                    route.path,
                    handler(route),
                    fail,
                    reads=one and route.method != "GET",
                    links=False,
                    facade=contract.name,
                    counts=one,
                )
            )
    return served


def shape_of(path: str) -> str:
    """A path without the names of its parameters."""
    return re.sub(r"\{[^}]*\}", "{}", path)


def caller(request: Request) -> Identity:
    """Who a call is by, as the gate found. Raises Unauthenticated where no gate was passed."""
    identity = request.scope.get(CALLER)
    if not isinstance(identity, Identity):
        raise Unauthenticated("this call passed no gate")
    return identity


class HttpApp:
    """Dispatches calls. Every one ends in a response, or in nothing where the client has gone."""

    def __init__(self, parts: HttpParts, served: Sequence[Served], observe: ObserveHttp | None = None) -> None:
        self._parts = parts
        self._observe = observe or ObserveHttp()
        self.asks_for_keys = parts.gate is not None and parts.gate.asks_for_keys
        self._served = [(Route(each.path, _unused, methods=[each.method]), each) for each in served]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        if scope["type"] != "http":
            return
        reply = Reply(send, self._parts.settings.http)
        request = Request(scope, receive)
        call = Call(request, {}, reply, request_id_of(request))
        served, error = self._find(scope)
        record = self._observe.begin(request, served, reply)
        if call.request_id:
            named(call.request_id)
        ended = BROKEN
        try:
            ended = await self._call(scope, request, call, served, error)
        finally:
            self._observe.end(request, served, reply, record, ended)

    async def _call(
        self, scope: Scope, request: Request, call: Call, served: Served | None, error: MethodNotAllowed | None
    ) -> str:
        """Serve a call; how it ended, "" where it was answered."""
        reply = call.reply
        unknown = fail_openai if scope["path"].startswith("/v1/") else fail_plain
        fail = served.fail if served is not None else unknown
        try:
            self._refuse_others(request, served)
            if self._parts.gate is None or (served is not None and served.open):
                await self._serve(served, error, call)
                return ""
            keys = request.headers.getlist("authorization"), request.headers.getlist("x-api-key")
            one = int(served is None or served.counts)
            async with self._parts.gate.admitted(*keys, scope.get(PEER, ()), stands_for=one) as identity:
                scope[CALLER] = identity
                await self._serve(served, error, call)
        except ClientGone:
            _log.debug("the client went away", path=served.path if served else "")
            return GONE
        except asyncio.CancelledError:
            # The server stops and has waited long enough; this task is cancelled by nobody else.
            if not reply.started:
                stops = Unavailable("the server stops; try again", retry_after_seconds=1.0)
                await _tell(fail, call, to_problem(stops))
        except Exception as caught:  # noqa: BLE001 - the edge: every error is mapped once
            problem = to_problem(caught)
            if reply.started:  # a stream breaks: uvicorn closes the connection when the response is not ended
                _log.warning("a response broke off", path=served.path if served else "", reason=problem.reason)
                return BROKEN
            await _tell(fail, call, problem)
        return "" if reply.over else BROKEN

    def _refuse_others(self, request: Request, served: Served | None) -> None:
        """Raise PermissionDenied for what a browser sends in the name of a page that may not call."""
        settings = self._parts.settings.http
        if not self.asks_for_keys and not (served is not None and served.probe):
            refuse_other_names(request.headers, settings)
        refuse_other_sites(request.headers, settings.origins, links=served is None or served.links)

    async def _serve(self, served: Served | None, error: MethodNotAllowed | None, call: Call) -> None:
        """Serve a call that was let in; its body is not read before."""
        if error is not None or served is None:
            raise error or NoSuchPath(f"nothing is served at {call.request.scope['path'][:160]}")
        if served.reads:
            call = replace(call, body=await read_json(call.request, self._parts.settings.http))
        await served.handle(self._parts, call)

    def _find(self, scope: Scope) -> tuple[Served | None, MethodNotAllowed | None]:
        """Find what serves a call and put its path's parameters into the scope."""
        allowed: list[str] = []
        closest: Served | None = None
        for route, served in self._served:
            match, child = route.matches(scope)
            if match is Match.FULL:
                scope.update(child)
                return served, None
            if match is Match.PARTIAL:
                closest = served
                allowed += [served.method]
        if closest is None:
            return None, None
        return closest, MethodNotAllowed(scope["method"], scope["path"][:160], ", ".join(allowed))


async def _tell(fail: Callable[[Call, Problem], Awaitable[None]], call: Call, problem: Problem) -> None:
    """Tell of an error; to a client that has gone, nothing."""
    try:
        await fail(call, problem)
    except ClientGone:
        _log.debug("the client went away before it was told of an error", reason=problem.reason)


async def _unused(_request: Request) -> None:
    """A Route wants an endpoint; here it only matches."""
