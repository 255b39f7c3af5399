"""Calls an existing RAG endpoint through its contract: bounded in time, size and number, and given up on in time."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar, Final

import httpx2

from router.asked import asked_text
from router.http.contract.load import load_contracts
from router.http.contract.paths import Sources
from router.http.contract.template import Values, names_used, render, render_text
from router.http.wire import header_value, to_json_bytes
from router.settings import BadSettings
from router.upstream.reading import Incremental, Malformed, Shapes, shapes_of, whole_answer
from standard.domain.errors import Unavailable
from standard.resilience import Breaker, RetryBudget

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from router.http.contract.load import ContractRoute
    from router.settings import UpstreamSettings
    from standard.domain.passage import Scope
    from standard.domain.question import Question

MAX_CHARS: Final = 2_000_000
_RETRIED: Final = frozenset({429, 502, 503, 504})
_BACKOFF_SECONDS: Final = 0.05
RESERVE_SECONDS: Final = 0.3
"""Kept back of a question's time, so that ours can still answer of the passages."""
MIN_SECONDS: Final = 0.2
"""With less left of a question's time the upstream is not called."""


class UpstreamUnavailable(Unavailable):
    """The upstream RAG cannot be reached, refuses, hangs, answers garbage, or is left alone after failing.

    `kind`: connect, timeout, status, refused, malformed, cut, open, busy; `deadline` where the question's own time is
    out, which says nothing of the upstream.
    """

    reason = "UPSTREAM_UNAVAILABLE"
    dependency: ClassVar[str] = "upstream"

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class UpstreamBrokeOff(UpstreamUnavailable):
    """The upstream failed after some of its answer had come."""


class _Retryable(Exception):
    """A failure before the first byte that another try may mend."""

    def __init__(self, error: UpstreamUnavailable) -> None:
        super().__init__(error.message)
        self.error = error


class UpstreamClient:
    """Asks the upstream. One for the process; safe for concurrent use."""

    def __init__(
        self, settings: UpstreamSettings, route: ContractRoute, shapes: Shapes, http: httpx2.AsyncClient
    ) -> None:
        self._settings = settings
        self._route = route
        self._shapes = shapes
        self._http = http
        clock = asyncio.get_running_loop().time
        self._breaker = Breaker(settings.breaker_failures, settings.breaker_seconds, clock)
        self._budget = RetryBudget(settings.retry_budget)
        self._calls = 0
        assert route.upstream is not None  # noqa: S101 - `chosen` took a route that has it
        self._upstream = route.upstream
        self._names = names_used(route.upstream.template).union(*map(names_used, route.upstream.headers.values()))

    async def alive(self) -> None:
        """Raise UpstreamUnavailable while it is left alone."""
        if self._breaker.open:
            raise UpstreamUnavailable("the upstream failed repeatedly and is left alone for a while", kind="open")

    def may_see(self, scope: Scope) -> bool:
        """Whether the upstream may answer for a caller: it knows neither filters nor access groups.

        A caller who may see only some collections is answered where the contract tells the upstream the collection.
        """
        return scope.filter is None and not scope.groups and (not scope.narrowed or "collection" in self._names)

    async def answer(self, question: Question) -> AsyncGenerator[str]:
        """Yield the answer's text as it comes, by the question's deadline less RESERVE_SECONDS.

        Raises UpstreamUnavailable before any text, UpstreamBrokeOff after some. Leaving the iteration ends the call.
        """
        if self._calls >= self._settings.max_concurrency:
            raise UpstreamUnavailable("too many calls of the upstream are under way", kind="busy")
        self._calls += 1
        self._budget.called()
        try:
            for attempt in range(self._settings.retries + 1):
                try:
                    async with contextlib.aclosing(self._attempt(question)) as pieces:
                        async for piece in pieces:
                            yield piece
                    return
                except _Retryable as retryable:
                    if attempt == self._settings.retries or self._breaker.open or not self._budget.take():
                        raise retryable.error from None
                await asyncio.sleep(_BACKOFF_SECONDS * 2**attempt * (0.5 + random.random()))  # noqa: S311 - jitter
        finally:
            self._calls -= 1

    async def _attempt(self, question: Question) -> AsyncGenerator[str]:
        """One call, told to the breaker."""
        if self._by(question)[0] - asyncio.get_running_loop().time() < MIN_SECONDS:
            raise out_of_time()
        if not self._breaker.allow():
            await self.alive()
            raise UpstreamUnavailable("another call tries whether the upstream is back", kind="open")
        told = some = False
        by, theirs = self._by(question)
        try:
            async with contextlib.aclosing(self._call(question)) as pieces:
                # No timeout is open while a piece is out: it would cancel whoever reads.
                while (piece := await _next(pieces, by)) is not None:
                    if piece and not some:
                        some = told = True
                        self._breaker.succeeded()
                    yield piece
            if not some:
                raise Malformed("it answered nothing")
        except (httpx2.HTTPError, TimeoutError, Malformed, UpstreamUnavailable, _Retryable) as error:
            failure = _failure(error)
            if theirs and failure.kind == "timeout" and asyncio.get_running_loop().time() >= by:
                failure = out_of_time()  # the question's own limit; `told` stays as it is
            else:
                told = True
                # A refusal is a sign of life.
                self._breaker.succeeded() if failure.kind == "refused" else self._breaker.failed()
            if some:
                kind = "deadline" if failure.kind == "deadline" else "cut"
                raise UpstreamBrokeOff(failure.message, kind=kind) from None
            if isinstance(error, _Retryable | httpx2.ConnectError | httpx2.RemoteProtocolError):
                raise _Retryable(failure) from None
            raise failure from None
        finally:
            if not told:  # cancelled, left by the reader, or out of the question's time
                self._breaker.abandoned()

    def _by(self, question: Question) -> tuple[float, bool]:
        """The event loop's time by which a call that starts now must end, and whether it is the question's limit."""
        ours = asyncio.get_running_loop().time() + self._settings.timeout_seconds
        if question.deadline is None:
            return ours, False
        return min(ours, question.deadline - RESERVE_SECONDS), question.deadline - RESERVE_SECONDS < ours

    async def _call(self, question: Question) -> AsyncGenerator[str]:
        request = self._request(question)
        async with asyncio.timeout(self._settings.first_byte_timeout_seconds):
            response = await self._http.send(request, stream=True)
        try:
            status = response.status_code
            if not 200 <= status < 300:
                kind = "refused" if 400 <= status < 500 and status not in _RETRIED else "status"
                failure = UpstreamUnavailable(f"the upstream answered {status}", kind=kind)
                raise _Retryable(failure) if status in _RETRIED else failure
            async for piece in self._read(response):
                yield piece
        finally:
            await response.aclose()

    async def _read(self, response: httpx2.Response) -> AsyncGenerator[str]:
        if response.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
            raise Malformed("its response is compressed, which was not asked for")  # and may unpack to any size
        media = response.headers.get("content-type", "").split(";", 1)[0].strip().lower()
        stream, idle, size = self._route.stream, self._settings.idle_timeout_seconds, 0
        if stream is None or media != self._shapes.media:
            parts = []
            async for text in _timed(response.aiter_text(), idle):
                size = _counted(size, text)
                parts.append(text)
            yield whole_answer(self._shapes, media, "".join(parts))
            return
        if stream.framing == "raw":
            async for text in _timed(response.aiter_text(), idle):
                size = _counted(size, text)
                yield text
            return
        reading = Incremental(self._shapes, sse=stream.framing == "sse")
        async for text in _timed(response.aiter_text(), idle):
            for piece in reading.feed(text):
                size = _counted(size, piece)
                yield piece
        for piece in reading.end():
            yield piece
        if not reading.finished:
            raise Malformed("its stream ended before its end")

    def _request(self, question: Question) -> httpx2.Request:
        upstream, history = self._upstream, self._route.asks.history
        words = {"user": "user", "assistant": "assistant"}
        if history is not None:
            words = {"user": history.user_word, "assistant": history.assistant_word}
        named = {
            # Where nothing of the history is sent, a follow-up has to stand by itself.
            "question": question.text.raw if "history" in self._names else asked_text(question),
            "session_id": session_of(question),
            "request_id": question.request_id,
            "collection": question.scope.collection,
            "top_k": question.top_k,
        }
        turns = [{"turn.role": words[turn.role], "turn.text": turn.text.raw} for turn in question.history]
        values = Values(named, {"history": turns}, Sources({}, {}, {}, {}))
        headers = [(b"content-type", b"application/json"), (b"accept-encoding", b"identity")]
        headers += [(name.encode(), header_value(render_text(each, values))) for name, each in upstream.headers.items()]
        key = self._settings.api_key
        if key is not None:
            headers.append((b"authorization", header_value(f"Bearer {key.get_secret_value()}")))
        return self._http.build_request(
            self._route.method,
            self._route.path,
            content=to_json_bytes(render(upstream.template, values)),
            headers=headers,
        )


def session_of(question: Question) -> str:
    """The session as the upstream is told of it: the same for each of its questions, another for each tenant."""
    if not question.session_id:
        return ""
    named = f"{question.scope.tenant}\n{question.session_id}"  # neither holds a line break
    return hashlib.sha256(named.encode("utf-8", "replace")).hexdigest()[:32]


def out_of_time() -> UpstreamUnavailable:
    """The question's own time is out."""
    return UpstreamUnavailable("the question's time left none for the upstream", kind="deadline")


async def _next(pieces: AsyncGenerator[str], deadline: float) -> str | None:
    """The next piece by the event loop's time `deadline`; None after the last. Raises TimeoutError."""
    async with asyncio.timeout_at(deadline):
        return await anext(pieces, None)


async def _timed(items: AsyncIterator[str], seconds: float) -> AsyncGenerator[str]:
    """The items; TimeoutError where none comes for `seconds`."""
    while True:
        async with asyncio.timeout(seconds):
            item = await anext(items, None)
        if item is None:
            return
        yield item


def _counted(size: int, piece: str) -> int:
    if size + len(piece) > MAX_CHARS:
        raise Malformed(f"its answer is longer than {MAX_CHARS} characters")
    return size + len(piece)


def _failure(error: BaseException) -> UpstreamUnavailable:
    """An error as ours; what the upstream said is not repeated."""
    match error:
        case UpstreamUnavailable():
            return error
        case _Retryable():
            return error.error
        case Malformed():
            return UpstreamUnavailable(f"the upstream is not as its contract says: {error}", kind="malformed")
        case TimeoutError() | httpx2.TimeoutException():
            return UpstreamUnavailable("the upstream was too slow", kind="timeout")
        case httpx2.ConnectError():
            return UpstreamUnavailable("the upstream cannot be reached", kind="connect")
    return UpstreamUnavailable("the connection to the upstream broke", kind="cut")


@asynccontextmanager
async def open_upstream(settings: UpstreamSettings) -> AsyncIterator[UpstreamClient]:
    """Yield the client. Raises BadSettings, naming the key, for a contract that cannot be called."""
    route, shapes = chosen(settings)
    timeout = httpx2.Timeout(
        settings.timeout_seconds,  # waits within a response are bounded where they happen
        connect=settings.connect_timeout_seconds,
        pool=settings.connect_timeout_seconds,
    )
    limits = httpx2.Limits(max_connections=settings.max_concurrency)
    async with httpx2.AsyncClient(base_url=settings.url, timeout=timeout, limits=limits, trust_env=False) as http:
        yield UpstreamClient(settings, route, shapes, http)


def chosen(settings: UpstreamSettings) -> tuple[ContractRoute, Shapes]:
    """The contract's route that is called. Raises BadSettings."""
    if not settings.url.startswith(("http://", "https://")):
        raise BadSettings(
            [f"upstream.url (POINTSMAN_UPSTREAM__URL): {settings.url!r} is no http:// or https:// address"]
        )
    if not settings.contract:
        raise BadSettings(["upstream.contract (POINTSMAN_UPSTREAM__CONTRACT): is empty; name the upstream's contract"])
    contracts = load_contracts([settings.contract])
    routes = [
        route
        for contract in contracts
        for route in contract.routes
        if route.upstream is not None and settings.path in {"", route.path}
    ]
    if not routes:
        where = f"no route {settings.path}" if settings.path else "no route"
        problem = f"{settings.contract}: has {where} with [route.upstream]; add one with the body to send"
        raise BadSettings([f"upstream.contract (POINTSMAN_UPSTREAM__CONTRACT): {problem}"])
    try:
        return routes[0], shapes_of(routes[0])
    except ValueError as error:
        key = "upstream.contract (POINTSMAN_UPSTREAM__CONTRACT)"
        raise BadSettings([f"{key}: {settings.contract}: {routes[0].path}: {error}"]) from None
