"""The upstream over HTTP: one request of its contract, its response read whole or as it comes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import httpx2

from router.http.contract.template import render
from router.http.wire import header_value, to_json_bytes
from router.upstream.asking import headers_of, names_sent, values_of
from router.upstream.failures import Malformed, Retryable, UpstreamUnavailable
from router.upstream.reading import Incremental, Shapes, whole_answer
from router.upstream.traced import called, of_http
from router.upstream.waits import counted, each_within
from standard import semconv

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from router.http.contract.compiled import ContractRoute
    from router.settings import UpstreamSettings
    from router.upstream.ending import Ending
    from standard.domain.question import Question
    from standard.spans import Span

_RETRIED: Final = frozenset({429, 502, 503, 504})


class HttpEndpoint:
    """A route of a contract, at the address of the settings."""

    def __init__(
        self, settings: UpstreamSettings, route: ContractRoute, shapes: Shapes, http: httpx2.AsyncClient
    ) -> None:
        assert route.upstream is not None  # noqa: S101 - a route is chosen that has it
        self._settings = settings
        self._route = route
        self._upstream = route.upstream
        self._shapes = shapes
        self._http = http
        self._span = of_http(route.method, route.path, settings.url)
        self.sends = names_sent(route.upstream.template, route.upstream.headers)

    async def pieces(self, question: Question) -> AsyncGenerator[str | Ending]:
        """Call it once; see Endpoint."""
        with called(*self._span) as opened:
            async with aclosing(self._called(question, opened)) as pieces:
                async for piece in pieces:
                    yield piece

    async def _called(self, question: Question, opened: Span) -> AsyncGenerator[str]:
        try:
            request = self._request(question, opened)
            async with asyncio.timeout(self._settings.first_byte_timeout_seconds):
                response = await self._http.send(request, stream=True)
            opened.set(semconv.HTTP_STATUS, response.status_code)
            try:
                _refuse(response.status_code)
                async for piece in self._read(response):
                    yield piece
            finally:
                await response.aclose()
        except httpx2.TimeoutException:
            raise TimeoutError from None
        except httpx2.ConnectError:
            raise Retryable(UpstreamUnavailable("the upstream cannot be reached", kind="connect")) from None
        except httpx2.HTTPError as error:
            broke = UpstreamUnavailable("the connection to the upstream broke", kind="cut")
            raise Retryable(broke) if isinstance(error, httpx2.RemoteProtocolError) else broke from None

    async def _read(self, response: httpx2.Response) -> AsyncGenerator[str]:
        if response.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
            raise Malformed("its response is compressed, which was not asked for")  # and may unpack to any size
        media = response.headers.get("content-type", "").split(";", 1)[0].strip().lower()
        stream, idle, size = self._route.stream, self._settings.idle_timeout_seconds, 0
        if stream is None or media != self._shapes.media:
            parts = []
            async for text in each_within(response.aiter_text(), idle):
                size = counted(size, text)
                parts.append(text)
            yield whole_answer(self._shapes, media, "".join(parts))
            return
        if stream.framing == "raw":
            async for text in each_within(response.aiter_text(), idle):
                size = counted(size, text)
                yield text
            return
        reading = Incremental(self._shapes, sse=stream.framing == "sse")
        async for text in each_within(response.aiter_text(), idle):
            for piece in reading.feed(text):
                size = counted(size, piece)
                yield piece
        for piece in reading.end():
            yield piece
        if not reading.finished:
            raise Malformed("its stream ended before its end")

    def _request(self, question: Question, opened: Span) -> httpx2.Request:
        history = self._route.asks.history
        user, assistant = ("user", "assistant") if history is None else (history.user_word, history.assistant_word)
        values = values_of(question, self.sends, user=user, assistant=assistant)
        told = headers_of(self._upstream.headers, values, self._settings)
        headers = [(b"content-type", b"application/json"), (b"accept-encoding", b"identity")]
        headers += [(name.encode(), header_value(value)) for name, value in told]
        headers += [(name.encode(), value.encode()) for name, value in opened.headers().items()]
        return self._http.build_request(
            self._route.method,
            self._route.path,
            content=to_json_bytes(render(self._upstream.template, values)),
            headers=headers,
        )


def _refuse(status: int) -> None:
    """Raise for a status that is no answer."""
    if not 200 <= status < 300:
        kind = "refused" if 400 <= status < 500 and status not in _RETRIED else "status"
        failure = UpstreamUnavailable(f"the upstream answered {status}", kind=kind)
        raise Retryable(failure) if status in _RETRIED else failure
