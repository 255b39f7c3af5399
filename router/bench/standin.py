"""What stands in for the services that a gateway calls: a language model's server and a collector of traces.

    python -m router.bench.standin

prints {"port": N} and serves until it is ended. A process of its own, so that its work is nobody else's. It streams
words that say when they were sent (`w` and 15 digits: microseconds of the monotonic clock, which all processes of a
machine share), paced as `POST /pace` {"words", "seconds"} says, the blank between words with the next one, as most
models send it. `GET /left` tells when clients left in the middle of an answer. A request for JSON gets a judgement of
the agentic loop: search, search on, answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import uvloop

from router.bench.processes import telling_process
from router.bench.wire import Connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

STAMP: Final = re.compile(r"w(\d{15})")
MODEL: Final = "scripted"
_WORDS: Final = 12
_START_SECONDS: Final = 30.0
_MOVES: Final = (
    {"next": "search", "query": "bilge pump maintenance", "score": 0.3, "missing": ["who keeps it"]},
    {"next": "search", "query": "night sailing signature", "score": 0.6, "missing": ["who signs"]},
    {"next": "answer", "score": 0.9, "missing": []},
)


def stamped(now: float) -> str:
    """A word that says when it was sent; `now` by time.monotonic."""
    return f" w{int(now * 1e6):015d}"


@dataclass(slots=True)
class _Pace:
    words: int = _WORDS
    seconds: float = 0.0


@dataclass(slots=True)
class _Standin:
    pace: _Pace = field(default_factory=_Pace)
    left: list[float] = field(default_factory=list)
    judged: int = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                await self._answer(head.split(b" ", 2)[1].decode(), body, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # the client has closed the connection
        finally:
            writer.close()

    async def _answer(self, path: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if path.endswith("/chat/completions"):
            await self._complete(json.loads(body), reader, writer)
        elif path == "/pace":
            self.pace = _Pace(**json.loads(body))
            await _whole(writer, {})
        elif path == "/left":
            left, self.left = self.left, []
            await _whole(writer, {"left": left})
        elif path.endswith("/models"):
            await _whole(writer, {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "bench"}]})
        else:  # a collector takes what it is sent
            await _whole(writer, {})

    async def _complete(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        said = ""
        if request.get("response_format"):
            said = json.dumps(_MOVES[self.judged % len(_MOVES)])
            self.judged += 1
        if request.get("stream"):
            await self._watched(_stream(writer, self.pace, said), reader)
            return
        text = said or "".join(stamped(time.monotonic()) for _ in range(self.pace.words))
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        await _whole(writer, {**_head("chat.completion"), "choices": [choice], "usage": _usage(self.pace.words)})

    async def _watched(self, writing: Coroutine[Any, Any, None], reader: asyncio.StreamReader) -> None:
        """Write until it is done, or until the client closes the connection, which is noted at that moment."""
        tasks = asyncio.ensure_future(writing), asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not tasks[0].done() or tasks[0].exception() is not None:
                self.left.append(time.monotonic())
                raise ConnectionResetError
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _stream(writer: asyncio.StreamWriter, pace: _Pace, said: str) -> None:
    """Stream what is said, or as many words as the pace says."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for number in range(1 if said else pace.words):
        if number:
            await asyncio.sleep(pace.seconds)
        await _piece(
            writer,
            _event({"role": "assistant", "content": said or stamped(time.monotonic())}, None),
        )
    await _piece(writer, _event({}, "stop"))
    await _piece(writer, _frame({**_head("chat.completion.chunk"), "choices": [], "usage": _usage(pace.words)}))
    await _piece(writer, b"data: [DONE]\n\n")
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _whole(writer: asyncio.StreamWriter, value: dict[str, Any]) -> None:
    content = json.dumps(value).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    await writer.drain()


async def _piece(writer: asyncio.StreamWriter, content: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(content), content))
    await writer.drain()


def _head(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-bench", "object": kind, "created": 1_700_000_000, "model": MODEL}


def _event(delta: dict[str, Any], reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
    return _frame({**_head("chat.completion.chunk"), "choices": [choice]})


def _frame(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(value).encode()


def _usage(words: int) -> dict[str, int]:
    return {"prompt_tokens": 600, "completion_tokens": words, "total_tokens": 600 + words}


@dataclass(frozen=True, slots=True)
class Standin:
    """The stand-in's process, from without. `url` is what a client takes as base URL."""

    port: int

    @property
    def url(self) -> str:
        """The model's base URL, /v1 included."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def pace(self, words: int, seconds: float) -> None:
        """Send `words` words an answer from now on, `seconds` apart; 0 = at once."""
        await self._call("/pace", {"words": words, "seconds": seconds})

    async def left(self) -> list[float]:
        """When clients left in the middle of an answer, by time.monotonic, since this was asked last."""
        found: list[float] = (await self._call("/left", None))["left"]
        return found

    async def _call(self, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        async with Connection(self.port) as connection:
            found: dict[str, Any] = json.loads(await connection.whole(connection.request(path, body)))
            return found


@asynccontextmanager
async def open_standin() -> AsyncIterator[Standin]:
    """Yield the stand-in, as a process of its own."""
    command = (sys.executable, "-m", "router.bench.standin")
    async with telling_process(*command, seconds=_START_SECONDS) as (_, told):
        yield Standin(int(told["port"]))


async def _serve() -> None:
    server = await asyncio.start_server(_Standin().connected, "127.0.0.1", 0)
    sys.stdout.write(json.dumps({"port": server.sockets[0].getsockname()[1]}) + "\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
