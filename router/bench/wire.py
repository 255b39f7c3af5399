"""As much of HTTP/1.1 as a load generator needs: one kept connection, whole replies and event streams.

Written out so that the client costs next to nothing and does the same for every server that is measured.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, Self

from standard.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from types import TracebackType

CALL_SECONDS: Final = 60.0


class Connection:
    """A kept connection to a server on loopback; one call at a time. Use as an async context manager."""

    def __init__(self, port: int, key: str = "") -> None:
        self._port = port
        self._authorization = f"authorization: Bearer {key}\r\n" if key else ""
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Self:
        self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._streams is not None:
            self._streams[1].close()

    def request(self, path: str, body: Mapping[str, Any] | None) -> bytes:
        """The bytes of a call: a POST, or a GET without a body. Made once for calls that are the same."""
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            f"{self._authorization}content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content

    async def whole(self, request: bytes) -> bytes:
        """The body of the reply. Raises FailedPrecondition for anything but a 200."""
        async with asyncio.timeout(CALL_SECONDS):
            head, reader = await self._head(request)
            length = _header(head, b"content-length")
            if length is not None:
                return await reader.readexactly(int(length))
            return b"".join([chunk async for chunk in _chunks(reader)])

    async def events(self, request: bytes) -> AsyncIterator[dict[str, Any]]:
        """The JSON of each `data:` line of an event stream, as it comes."""
        async with asyncio.timeout(CALL_SECONDS):
            _, reader = await self._head(request)
            held = b""
            async for chunk in _chunks(reader):
                *lines, held = (held + chunk).split(b"\n")
                for line in lines:
                    if line.startswith(b"data:") and b"[DONE]" not in line:
                        yield json.loads(line[5:])

    async def _head(self, request: bytes) -> tuple[bytes, asyncio.StreamReader]:
        if self._streams is None:
            raise FailedPrecondition("the connection is not open")
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            status = head.split(b"\r\n", 1)[0].decode("latin-1")
            raise FailedPrecondition(f"the server answered {status}")
        return head, reader


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The pieces of a body in chunked transfer coding."""
    while True:
        size = int((await reader.readline()).split(b";")[0], 16)
        piece = await reader.readexactly(size)
        await reader.readline()
        if not size:
            return
        yield piece


def _header(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n"):
        found, _, value = line.partition(b":")
        if found.lower() == name:
            return value.strip()
    return None
