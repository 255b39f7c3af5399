"""One call on the wire: its request read within bounds, its client watched, its response written at once.

What goes wrong without it: a body without end fills the memory; a client that sends or reads a byte a minute holds a
place for hours; one that went away is answered at full cost; a proxy that hears nothing for a minute cuts the line.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import from_json

from router.http.errors import BodyTooLarge, SlowSender, UnsupportedType
from standard.domain.errors import InvalidInput
from standard.unicode import encodable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from starlette.requests import Request
    from starlette.types import Receive, Send

    from router.settings import HttpSettings

JSON: Final = "application/json"
SSE: Final = "text/event-stream"
NDJSON: Final = "application/x-ndjson"
_DRAINED_BYTES: Final = 67_108_864
_JSON_TYPES = re.compile(r"application/(?:[a-z0-9.+-]*\+)?json")
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


class ClientGone(Exception):
    """The client went away, or stopped reading; nobody is left to answer."""


def request_id_of(request: Request) -> str:
    """The caller's X-Request-Id where it is an id (1 to 128 printable characters without blanks), else empty."""
    given = request.headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else ""


async def read_json(request: Request, settings: HttpSettings) -> dict[str, Any]:
    """The body, a JSON object.

    Raises UnsupportedType, BodyTooLarge, SlowSender, and InvalidInput for what is no JSON object; lone surrogates,
    NaN and a nesting beyond 200 are none.
    """
    content_type = request.headers.get("content-type", JSON).split(";", 1)[0].strip().lower()
    if not _JSON_TYPES.fullmatch(content_type):
        raise UnsupportedType("content-type", f"{content_type[:80]!r} is not read here; send {JSON}")
    if request.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise UnsupportedType("content-encoding", "compressed bodies are not read here; send it as it is")
    body = await read_body(request, settings)
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidInput("body", f"is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput("body", "must be a JSON object")
    return value


async def read_body(request: Request, settings: HttpSettings) -> bytes:
    """The whole body, at most http.max_body_bytes, within http.client_timeout_seconds."""
    limit = settings.max_body_bytes
    announced = request.headers.get("content-length", "")
    # The parser below us has refused lengths that are no numbers.
    too_large = announced.isdigit() and int(announced) > limit
    if too_large and (int(announced) > _DRAINED_BYTES or "expect" in request.headers):
        raise BodyTooLarge("body", f"has {announced} bytes; at most {limit} are allowed")
    try:
        async with asyncio.timeout(settings.client_timeout_seconds):
            return await _collect(request.receive, limit)
    except TimeoutError:
        seconds = settings.client_timeout_seconds
        raise SlowSender(f"the request did not arrive whole within {seconds:g} s") from None


async def _collect(receive: Receive, limit: int) -> bytes:
    """Collect a body; one that is too large is read on, unkept and bounded.

    A client that is cut off while it sends sees a broken connection instead of the reason.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        size += len(piece)
        if size <= limit:
            parts.append(piece)
        if not message.get("more_body", False) or size > _DRAINED_BYTES:
            break
    if size > limit:
        raise BodyTooLarge("body", f"has {size} bytes or more; at most {limit} are allowed")
    return b"".join(parts)


class Reply:
    """The response of one call. `started` says whether its head is out; after that an error is part of the stream.

    `status` is that of the head, 0 before it; `headers` go out with it, whatever it is.
    """

    def __init__(self, send: Send, settings: HttpSettings) -> None:
        self.started = False
        self.over = False
        self.status = 0
        self.headers: tuple[tuple[str, str], ...] = ()
        self._send = send
        self._stall = settings.client_timeout_seconds
        self._heartbeat_seconds = settings.heartbeat_seconds
        self._sent_at = 0.0

    async def whole(self, status: int, body: bytes, content_type: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Send a whole response."""
        length = ("content-length", str(len(body)))
        await self._head(status, [("content-type", content_type), length, *headers])
        self.over = True
        await self._body(body, more=False)

    async def open(self, status: int, content_type: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Begin a stream."""
        # Proxies that buffer (nginx by default) are told not to.
        quiet = [("cache-control", "no-cache"), ("x-accel-buffering", "no")]
        await self._head(status, [("content-type", content_type), *quiet, *headers])

    async def piece(self, body: bytes) -> None:
        """Send a piece of a stream; it leaves at once."""
        if body:
            await self._body(body, more=True)

    async def close(self) -> None:
        """End a stream."""
        self.over = True
        await self._body(b"", more=False)

    @asynccontextmanager
    async def kept_alive(self, heartbeat: bytes) -> AsyncIterator[None]:
        """Send `heartbeat` whenever nothing else was sent for a while; b"" sends none."""
        beating = asyncio.create_task(self._beat(heartbeat)) if heartbeat else None
        try:
            yield
        finally:
            if beating is not None:
                beating.cancel()
                await asyncio.wait([beating])
                if not beating.cancelled():
                    beating.result()  # what went wrong with it is not hidden

    async def _beat(self, heartbeat: bytes) -> None:
        now = asyncio.get_running_loop().time
        while True:
            left = self._sent_at + self._heartbeat_seconds - now()
            if self.over:
                return
            if not self.started:  # nothing can be said before the head, which waits for the first event
                await asyncio.sleep(self._heartbeat_seconds)
            elif left > 0:
                await asyncio.sleep(left)
            else:
                try:
                    await self.piece(heartbeat)
                except ClientGone:  # the next piece of the answer finds out as well
                    return

    async def _head(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.started = True
        self.status = status
        encoded = [(name.encode("latin-1"), header_value(value)) for name, value in (*headers, *self.headers)]
        encoded.append((b"x-content-type-options", b"nosniff"))
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def _body(self, body: bytes, *, more: bool) -> None:
        self._sent_at = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._stall):
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            raise ClientGone from None


def header_value(value: str) -> bytes:
    """A value that is one header's and no more: control characters become blanks, what Latin-1 lacks `?`."""
    plain = "".join(" " if ord(character) < 32 or ord(character) == 127 else character for character in value)
    return plain.encode("latin-1", "replace")


@asynccontextmanager
async def while_present(receive: Receive, reply: Reply) -> AsyncIterator[None]:
    """Cancel the block when the client goes away, and raise ClientGone in its place."""
    caller = asyncio.current_task()
    assert caller is not None  # noqa: S101 - a coroutine runs in a task
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        if not reply.over:
            gone = True
            caller.cancel("the client went away")

    watching = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if gone and caller.uncancel() == 0:
            raise ClientGone from None
        raise
    finally:
        watching.cancel()
        await asyncio.wait([watching])


def to_json_bytes(value: object) -> bytes:
    """JSON on one line of UTF-8; lone surrogates become `?`."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def sse_frame(data: bytes, *, event: str = "", sequence: int | None = None) -> bytes:
    """A server-sent event whose data is one line."""
    head = f"id: {sequence}\n" if sequence is not None else ""
    if event:
        head += f"event: {event}\n"
    return head.encode() + b"data: " + data + b"\n\n"


def sse_text(text: str, *, event: str = "", newline: str = "\n") -> bytes:
    """A server-sent event of any text: each of its lines a data line. Empty text makes an event without data."""
    lines = [f"event: {event}"] if event else []
    if text or not event:
        lines += [f"data: {line}" for line in re.split(r"\r\n|\r|\n", encodable(text))]
    return (newline.join(lines) + 2 * newline).encode()


def accepts(headers: Mapping[str, str]) -> str:
    """Which of JSON, SSE and NDJSON an Accept header asks for; the first it names, JSON where it names none."""
    for part in headers.get("accept", "").split(","):
        media = part.split(";", 1)[0].strip().lower()
        if media in {JSON, SSE, NDJSON}:
            return media
        if media in {"application/ndjson", "application/jsonl", "application/x-jsonlines"}:
            return NDJSON
    return JSON
