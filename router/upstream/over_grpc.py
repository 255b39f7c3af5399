"""The upstream over gRPC: another pointsman, or any method that takes one message and answers with one or several.

Responses are read as bytes and taken apart here: what grpc would do with a message that cannot be read, or with a
second one of a unary method, tells nobody what was wrong.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import grpc

from router.http.contract.template import render
from router.upstream.asking import headers_of, names_sent, values_of
from router.upstream.described import (
    Described,
    NotDescribed,
    described_by_file,
    described_by_us,
    described_in,
    stands_at,
    text_at,
)
from router.upstream.ending import Ending, notices_at, outcome_at
from router.upstream.failures import Malformed, Retryable, UpstreamUnavailable
from router.upstream.reflection import files_of
from router.upstream.traced import called, of_grpc
from router.upstream.waits import MAX_CHARS, counted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from router.http.contract.compiled import GrpcMethod
    from router.settings import UpstreamSettings
    from standard.domain.answer import Outcome
    from standard.domain.question import Question

CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 4 * MAX_CHARS),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.client_idle_timeout_ms", 60_000),  # what a firewall has forgotten meanwhile is not used again
    ("grpc.keepalive_time_ms", 310_000),  # servers refuse pings that come more often than every five minutes
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.enable_retries", 0),  # retries are ours, within their budget
)
_BUSY: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED})
_REFUSED: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)


class GrpcEndpoint:
    """A method of a contract, over a channel that its opener closes."""

    def __init__(self, settings: UpstreamSettings, method: GrpcMethod, channel: grpc.aio.Channel) -> None:
        """Read the method's description where it is a file or ours. Raises NotDescribed, and OSError."""
        self._settings = settings
        self._method = method
        self._channel = channel
        self._described = described_by_us(method)
        if self._described is None and method.descriptors is not None:
            self._described = described_by_file(method, method.descriptors)
        self._asked = self._described is None
        self._asking = asyncio.Lock()
        # A method with one response is called as one with several: a second one is then seen.
        self._call: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
            f"/{method.service}/{method.method}", request_serializer=None, response_deserializer=None
        )
        self._span = of_grpc(f"{method.service}/{method.method}", settings.url)
        self.sends = names_sent(method.template, method.metadata)

    async def pieces(self, question: Question) -> AsyncGenerator[str | Ending]:
        """Call it once; see Endpoint."""
        words = {"user": self._method.user_word, "assistant": self._method.assistant_word}
        values = values_of(question, self.sends, **words)
        metadata = [(name, _ascii(value)) for name, value in headers_of(self._method.metadata, values, self._settings)]
        try:
            await self._connected()
            described = await self._description(metadata)
            body = described.encode(render(self._method.template, values))
            with called(*self._span) as opened:
                headers = [*metadata, *opened.headers().items()]
                async with aclosing(self._read(described, body, headers)) as pieces:
                    async for piece in pieces:
                        yield piece
        except NotDescribed:
            raise
        except Malformed:
            if self._asked:  # the server may be another by now: ask it anew
                self._described = None
            raise
        except grpc.aio.AioRpcError as error:
            raise _failure(error.code()) from None

    async def _connected(self) -> None:
        """Wait for the connection. Raises Retryable where there is none, TimeoutError where none is decided in time."""
        ready = grpc.ChannelConnectivity.READY
        failed = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)
        async with asyncio.timeout(self._settings.connect_timeout_seconds):
            while (state := self._channel.get_state(try_to_connect=True)) is not ready:
                if state in failed:
                    raise Retryable(UpstreamUnavailable("the upstream cannot be reached", kind="connect"))
                await self._channel.wait_for_state_change(state)

    async def _description(self, metadata: list[tuple[str, str]]) -> Described:
        """The method's description, asked for once and kept until an answer does not fit it."""
        if self._described is not None:
            return self._described
        seconds = self._settings.first_byte_timeout_seconds
        async with asyncio.timeout(seconds), self._asking:
            if self._described is None:
                files = await files_of(self._channel, self._method.service, metadata, seconds)
                self._described = described_in(self._method, files)
            return self._described

    async def _read(
        self, described: Described, body: bytes, metadata: list[tuple[str, str]]
    ) -> AsyncGenerator[str | Ending]:
        method, written, size, whole, messages = self._method, [], 0, "", 0
        outcome: Outcome | None = None
        notices: tuple[str, ...] = ()
        ended = not method.end
        call = self._call(body, metadata=tuple(metadata), timeout=self._settings.timeout_seconds + 1.0)
        try:
            while (data := await self._next(call, first=not messages)) is not None:
                messages += 1
                if messages > 1 and not described.streams:
                    raise Malformed("it answered more than once")
                value = described.decode(data)
                if stands_at(method.error, value):
                    raise Malformed("its answer told of an error")
                ended = ended or stands_at(method.end, value)
                whole = text_at(method.answer, value) or whole
                outcome = outcome_at(method.outcome, value) or outcome
                notices = notices_at(method.notices, value) or notices
                piece = text_at(method.token, value)
                if piece:
                    size = counted(size, piece)
                    written.append(piece)
                    yield piece
        finally:
            call.cancel()  # nothing where it has ended
        if not ended:
            raise Malformed("its stream ended before its end")
        said = "".join(written)
        if whole.startswith(said) and whole != said:
            counted(0, whole)
            yield whole[len(said) :]
        if outcome is not None or notices:
            yield Ending(outcome, notices)

    async def _next(self, call: grpc.aio.UnaryStreamCall[bytes, bytes], *, first: bool) -> bytes | None:
        """The next message; None after the last. Raises TimeoutError and AioRpcError."""
        settings = self._settings
        seconds = settings.first_byte_timeout_seconds if first else settings.idle_timeout_seconds
        async with asyncio.timeout(seconds):
            data = await call.read()
        return data if isinstance(data, bytes) else None


def _failure(code: grpc.StatusCode) -> UpstreamUnavailable | Retryable:
    """A status as ours; its details are not repeated."""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return UpstreamUnavailable("the upstream was too slow", kind="timeout")
    failure = UpstreamUnavailable(
        f"the upstream answered {code.name}", kind="refused" if code in _REFUSED else "status"
    )
    return Retryable(failure) if code in _BUSY else failure


def _ascii(value: str) -> str:
    """A value that metadata can carry: printable ASCII, blanks and `?` for the rest."""
    return "".join(each if " " <= each <= "~" else " " if each.isspace() else "?" for each in value).strip()
