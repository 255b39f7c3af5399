"""The server itself: HTTP/1.1 by h11 over asyncio streams, one task a connection."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self

import h11

from tests.support.model_server import api
from tests.support.model_server.behaviour import Behaviour, Failure, Hang, Raw, Reply, Script
from tests.support.model_server.embedding import embeddings_response
from tests.support.model_server.record import Recorded


class _Cut(Exception):
    """The script says to drop the connection now."""


class ModelServer:
    """An OpenAI-compatible server on a free loopback port.

    `lacks` names features the server refuses with the error a real one gives: tools, json_schema, json_object,
    stream_options, parallel_tool_calls, temperature, max_tokens, tool_choice_required. `api_key` makes it demand that
    key. `requests` are all chat requests in order of arrival; `others` everything else (models, embeddings).
    """

    def __init__(
        self,
        script: Script = (),
        *,
        lacks: Sequence[str] = (),
        api_key: str = "",
        models: Sequence[str] = ("scripted",),
        dimensions: int = 384,
        embedding_failure: Behaviour | None = None,
    ) -> None:
        self.script = script
        self.lacks = frozenset(lacks)
        self.api_key = api_key
        self.models = tuple(models)
        self.dimensions = dimensions
        self.embedding_failure = embedding_failure
        self.requests: list[Recorded] = []
        self.others: list[Recorded] = []
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrival = asyncio.Condition()
        self._port = 0

    @property
    def base_url(self) -> str:
        """What a client takes as base URL, /v1 included."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; a server that was stopped comes back on its old port."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and drop every connection."""
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def arrived(self, count: int, within_seconds: float = 5.0) -> Recorded:
        """Wait until `count` chat requests have arrived; the last of them."""
        async with asyncio.timeout(within_seconds), self._arrival:
            await self._arrival.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await _Connection(self, reader, writer).serve()
        except (ConnectionError, h11.RemoteProtocolError, _Cut):
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()  # the server stops; the task ends quietly, as asyncio.streams would log it
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def behaviour_for(self, request: Recorded) -> Behaviour:
        """What the script says to a chat request."""
        refused = self._refused(request)
        if refused is not None:
            return refused
        if not callable(self.script):
            if request.number < len(self.script):
                return self.script[request.number]
            return Failure(410, f"The script has {len(self.script)} steps; this is request {request.number + 1}.")
        behaviour = self.script(request)
        return await behaviour if inspect.isawaitable(behaviour) else behaviour

    def _refused(self, request: Recorded) -> Failure | None:
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            return Failure(401, f"Incorrect API key provided: {given}.", code="invalid_api_key")
        return api.refusal_of(request.body, self.lacks)

    async def record(self, request: Recorded) -> None:
        """Remember a request, and tell those who wait for it."""
        if request.path.endswith("/chat/completions"):
            request.number = len(self.requests)
            self.requests.append(request)
            async with self._arrival:
                self._arrival.notify_all()
        else:
            self.others.append(request)


class _Connection:
    """One client connection: requests one after another, watched for the client's leaving while one is answered."""

    def __init__(self, server: ModelServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)

    async def serve(self) -> None:
        while True:
            request = await self._next_request()
            if request is None:
                return
            await self._server.record(request)
            await self._answer_watched(request)
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _next_request(self) -> Recorded | None:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(65536))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                return Recorded(
                    method=head.method.decode(),
                    path=head.target.decode(),
                    headers={name.decode().lower(): value.decode() for name, value in head.headers},
                    body=json.loads(body) if body else {},
                    arrived=asyncio.get_running_loop().time(),
                )
            else:
                return None

    async def _answer_watched(self, request: Recorded) -> None:
        loop = asyncio.get_running_loop()
        answering = asyncio.ensure_future(self._answer(request))
        watching = asyncio.ensure_future(self._reader.read(65536))
        try:
            await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                gone = watching.exception() is not None or watching.result() == b""
                if gone:
                    request.client_gone = loop.time()
                    raise ConnectionResetError
                self._http.receive_data(watching.result())
            await answering
            request.finished = loop.time()
        finally:
            if request.finished is None:  # whatever the half-written answer failed of: nobody reads it any more
                request.client_gone = request.client_gone or loop.time()
            for task in (answering, watching):
                task.cancel()
            await asyncio.gather(answering, watching, return_exceptions=True)

    async def _answer(self, request: Recorded) -> None:
        if request.path.endswith("/chat/completions"):
            await self._play(request, await self._server.behaviour_for(request))
        elif request.path.endswith("/models"):
            models = [{"id": name, "object": "model", "owned_by": "tests"} for name in self._server.models]
            await self._send_json(request, {"object": "list", "data": models})
        elif request.path.endswith("/embeddings"):
            if self._server.embedding_failure is not None:
                await self._play(request, self._server.embedding_failure)
            else:
                await self._send_json(request, embeddings_response(request.body, self._server.dimensions))
        else:
            await self._play(request, Failure(404, f"Unknown path {request.path}"))

    async def _play(self, request: Recorded, behaviour: Behaviour) -> None:
        match behaviour:
            case Hang(headers=headers):
                if headers:
                    await self._head(request, 200, "text/event-stream")
                await asyncio.Event().wait()
            case Failure() as failure:
                await asyncio.sleep(failure.delay)
                extra = [] if failure.retry_after is None else [("retry-after", str(failure.retry_after))]
                await self._send(request, failure.status, "application/json", api.error_body(failure), extra)
            case Raw() as raw:
                await asyncio.sleep(raw.delay)
                if raw.cut:
                    await self._head(request, raw.status, raw.content_type, length=len(raw.body) + 100)
                    await self._data(raw.body)
                    raise _Cut
                await self._send(request, raw.status, raw.content_type, raw.body)
            case Reply() as reply:
                await asyncio.sleep(reply.delay)
                await (self._stream(request, reply) if request.streamed else self._unary(request, reply))

    async def _unary(self, request: Recorded, reply: Reply) -> None:
        await asyncio.sleep(reply.first_token_delay + reply.token_delay * len(reply.deltas()))
        body = json.dumps(api.completion_body(request, reply)).encode()
        if reply.cut_after is None and reply.stall_after is None:
            await self._send(request, 200, "application/json", body)
            return
        await self._head(request, 200, "application/json", length=len(body))
        await self._data(body[: len(body) // 2])
        if reply.stall_after is not None:
            await asyncio.Event().wait()
        raise _Cut

    async def _stream(self, request: Recorded, reply: Reply) -> None:
        await self._head(request, 200, "text/event-stream")
        for chunk in api.opening_chunks(request, reply):
            await self._event(chunk)
        await asyncio.sleep(reply.first_token_delay)
        async for chunk in self._paced(request, reply):
            await self._event(chunk)
        for chunk in (*api.call_chunks(request, reply), *api.closing_chunks(request, reply)):
            await self._event(chunk)
        if reply.done_line:
            await self._data(b"data: [DONE]\n\n")
        await self._write(h11.EndOfMessage())

    async def _paced(self, request: Recorded, reply: Reply) -> AsyncIterator[dict[str, Any]]:
        pieces = () if reply.empty_choices else reply.deltas()
        for sent, piece in enumerate(pieces):
            await self._maybe_break_off(reply, sent)
            if sent:
                await asyncio.sleep(reply.token_delay)
            yield api.text_chunk(request, piece)
        await self._maybe_break_off(reply, len(pieces))

    async def _maybe_break_off(self, reply: Reply, sent: int) -> None:
        if reply.cut_after == sent:
            raise _Cut
        while reply.stall_after == sent:
            await asyncio.sleep(reply.ping or 3600)
            await self._data(b": ping\n\n")

    async def _event(self, chunk: dict[str, Any]) -> None:
        await self._data(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    async def _send_json(self, request: Recorded, value: dict[str, Any]) -> None:
        await self._send(request, 200, "application/json", json.dumps(value).encode())

    async def _send(
        self, request: Recorded, status: int, kind: str, body: bytes, extra: Sequence[tuple[str, str]] = ()
    ) -> None:
        await self._head(request, status, kind, length=len(body), extra=extra)
        await self._data(body)
        await self._write(h11.EndOfMessage())

    async def _head(
        self,
        request: Recorded,
        status: int,
        kind: str,
        *,
        length: int | None = None,
        extra: Sequence[tuple[str, str]] = (),
    ) -> None:
        request.status = status
        framing = ("transfer-encoding", "chunked") if length is None else ("content-length", str(length))
        await self._write(h11.Response(status_code=status, headers=[("content-type", kind), framing, *extra]))

    async def _data(self, data: bytes) -> None:
        await self._write(h11.Data(data=data))

    async def _write(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()
