"""The HTTP server: uvicorn on our event loop, with the bounds that it leaves open.

What goes wrong without them: a client that sends a byte of its request line a minute, or headers without end, holds a
connection and memory for as long as it likes.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from router.access.certified import PEER, names_over_http
from router.access.identity import require_loopback
from router.access.tls import http_context
from router.settings import BadSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from router.access.tls import Certificates
    from router.http.app import HttpApp
    from router.settings import HttpSettings

HEAD_BYTES: Final = 65_536
"""Largest request line and headers together."""
_KEEP_ALIVE_SECONDS: Final = 75
_LAST_SECONDS: Final = 5.0


class _HeadTooLarge(Exception):
    """Request line and headers are beyond HEAD_BYTES."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection whose request heads are bounded in size and in the time they take."""

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*arguments, **named)
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._peer: tuple[str, ...] = ()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._peer = names_over_http(transport.get_extra_info("peercert"))
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        self._forget_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A request begins; on a kept connection the wait for its head starts here."""
        self._head_bytes = 0
        self._await_head()
        super().on_message_begin()
        if self._peer:
            self.scope[PEER] = self._peer  # type: ignore[literal-required]

    def on_url(self, url: bytes) -> None:
        """A piece of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is here; the body's time is the application's business."""
        self._forget_timer()
        super().on_headers_complete()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES:
            raise _HeadTooLarge

    def _await_head(self) -> None:
        if self._head_timer is None:
            # uvicorn has no setting of ours; the keep-alive it was given is the longest a client may be silent.
            seconds = getattr(self.config, "head_seconds", _KEEP_ALIVE_SECONDS)
            self._head_timer = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _forget_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: when to stop is for whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def open_http(
    settings: HttpSettings,
    app: HttpApp,
    *,
    grace_seconds: float,
    port: int | None = None,
    listening: socket.socket | None = None,
    certificates: Certificates | None = None,
) -> AsyncIterator[int]:
    """Yield the port of a started server; at the end of the block calls in flight have `grace_seconds` to finish.

    `listening` is a socket that several processes share; else one is made. It is closed at the end, here alone.
    With `certificates` it speaks TLS.
    Raises BadSettings for an address that is taken, or one that others can reach while no keys are asked for.
    """
    require_loopback(settings.host, "http.host (POINTSMAN_HTTP__HOST)", keys=app.asks_for_keys)
    listening = listening or listening_socket(settings.host, settings.port if port is None else port)
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, math.ceil(grace_seconds)),
        limit_concurrency=settings.max_connections,
    )
    config.head_seconds = settings.client_timeout_seconds  # type: ignore[attr-defined]
    async with AsyncExitStack() as stack:
        if certificates is not None:
            config.load()
            config.ssl = await stack.enter_async_context(http_context(certificates))
        yield await stack.enter_async_context(_served(config, listening, grace_seconds))


@asynccontextmanager
async def _served(config: uvicorn.Config, listening: socket.socket, grace_seconds: float) -> AsyncIterator[int]:
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]), name="http")
    try:
        while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.001)
        if serving.done():
            await serving
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        try:
            await asyncio.wait([serving], timeout=grace_seconds + _LAST_SECONDS)
            left = server.server_state.tasks
            if left:  # cancelled by uvicorn; they end with an error to their clients
                await asyncio.wait(set(left), timeout=_LAST_SECONDS)
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
            listening.close()


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; a second server on the port fails instead of sharing it."""
    plain = host.strip("[]")
    problem = ""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(plain, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(1024)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
        return listening
    except OSError as error:
        problem = error.strerror or str(error)
    advice = "0 takes a free one; http.enabled = false serves gRPC alone"
    raise BadSettings([f"http.port (POINTSMAN_HTTP__PORT): {host}:{port}: {problem}; {advice}"])
