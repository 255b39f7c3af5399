"""A legacy endpoint that does what a test tells it, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Says:
    """A response: status, type and pieces, each after a pause; `cut` closes short of the end, `hang` never goes on.

    `endless` says the last piece again and again.
    """

    pieces: tuple[str, ...] = ()
    status: int = 200
    content_type: str = "application/x-ndjson"
    pause: float = 0.0
    cut: bool = False
    hang: bool = False
    silent: bool = False
    endless: bool = False
    encoding: str = ""


def told(*words: str) -> tuple[str, ...]:
    """The lines of the plain contract's stream."""
    lines = [{"type": "token", "text": word} for word in words] + [{"type": "done", "answer": "".join(words)}]
    return tuple(json.dumps(line) + "\n" for line in lines)


@dataclass
class Legacy:
    """Serves what `script` says, one response a request; the last one again and again."""

    script: Sequence[Says]
    bodies: list[dict[str, Any]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    gone: int = 0
    sent: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._respond(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length")
        )
        self.heads.append(head)
        self.bodies.append(json.loads(await reader.readexactly(length)))
        says = self.script[min(len(self.bodies), len(self.script)) - 1]
        if says.silent:
            await self._until_gone(reader)
        fixed = f"HTTP/1.1 {says.status} X\r\ncontent-type: {says.content_type}\r\ntransfer-encoding: chunked\r\n"
        if says.encoding:
            fixed += f"content-encoding: {says.encoding}\r\n"
        writer.write(f"{fixed}connection: close\r\n\r\n".encode())
        for piece in says.pieces:
            await asyncio.sleep(says.pause)
            await self._send(writer, piece)
        while says.endless:
            await self._send(writer, says.pieces[-1])
        if says.hang:
            await self._until_gone(reader)
        if not says.cut:
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    async def _send(self, writer: asyncio.StreamWriter, piece: str) -> None:
        data = piece.encode()
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()
        self.sent += len(data)

    async def _until_gone(self, reader: asyncio.StreamReader) -> None:
        await reader.read()
        self.gone += 1
        raise ConnectionError
