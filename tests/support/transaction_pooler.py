"""A connection pooler in transaction mode, like PgBouncer's, but spiteful: every transaction gets another session.

It speaks PostgreSQL's frontend/backend protocol 3.0 as far as needed: it greets clients itself (with a process id of
its own invention, and no password), refuses startup parameters that PgBouncer refuses, and passes messages between
client and server session from the first message until the server says it is idle outside a transaction. Cancel
requests are passed on to the session that works for the client.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_SSL_REQUEST = 80877103
_CANCEL_REQUEST = 80877102
_ALLOWED = {"user", "database", "application_name", "client_encoding", "TimeZone", "DateStyle"}


class _Session:
    """One server session: a connection that psycopg opened and logged in, then used as a bare socket."""

    def __init__(self, connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        self.connection = connection
        self.socket = socket.socket(fileno=os.dup(connection.fileno()))
        self.socket.setblocking(False)


class TransactionPooler:
    """`sessions` server sessions are handed out in turn. `transactions` counts those that were passed on."""

    def __init__(self, sessions: list[_Session]) -> None:
        self._free: asyncio.Queue[_Session] = asyncio.Queue()  # the one idle longest comes first
        for session in sessions:
            self._free.put_nowait(session)
        self._working: dict[int, _Session] = {}
        self._ids = itertools.count(1_000_001)
        self.transactions = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it leaves."""
        client = next(self._ids)
        try:
            if await self._greet(reader, writer, client):
                await self._pass_on(reader, writer, client)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: int) -> bool:
        while True:
            (size,) = struct.unpack("!I", await reader.readexactly(4))
            body = await reader.readexactly(size - 4)
            (code,) = struct.unpack("!I", body[:4])
            if code == _SSL_REQUEST:
                writer.write(b"N")
                continue
            if code == _CANCEL_REQUEST:
                (wanted,) = struct.unpack("!I", body[4:8])
                if wanted in self._working:
                    await self._working[wanted].connection.cancel_safe(timeout=5)
                return False
            break
        words = body[4:].rstrip(b"\x00").split(b"\x00")
        unknown = {word.decode() for word in words[::2]} - _ALLOWED
        if unknown:
            text = f"unsupported startup parameter: {', '.join(sorted(unknown))}"
            fields = b"SFATAL\x00VFATAL\x00C08P01\x00M" + text.encode() + b"\x00\x00"
            writer.write(b"E" + struct.pack("!I", len(fields) + 4) + fields)
            return False
        writer.write(b"R" + struct.pack("!II", 8, 0))
        for name, value in (("server_version", "18.6"), ("client_encoding", "UTF8"), ("TimeZone", "America/Lima")):
            pair = name.encode() + b"\x00" + value.encode() + b"\x00"
            writer.write(b"S" + struct.pack("!I", len(pair) + 4) + pair)
        writer.write(b"K" + struct.pack("!III", 12, client, 42) + b"Z" + struct.pack("!I", 5) + b"I")
        return True

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            first = await _message(reader)
            if first[:1] == b"X":
                return
            session = await self._free.get()
            self.transactions += 1
            self._working[client] = session
            up = asyncio.create_task(self._upwards(reader, session, first))
            try:
                buffer = b""
                idle = False
                while not idle:
                    buffer += await loop.sock_recv(session.socket, 1 << 16)
                    while len(buffer) >= 5 and len(buffer) > (size := struct.unpack("!I", buffer[1:5])[0]):
                        message, buffer = buffer[: size + 1], buffer[size + 1 :]
                        writer.write(message)
                        idle = message[:1] == b"Z" and message[5:] == b"I" and not buffer
                    await writer.drain()
            finally:
                up.cancel()
                await asyncio.gather(up, return_exceptions=True)
                del self._working[client]
                self._free.put_nowait(session)

    async def _upwards(self, reader: asyncio.StreamReader, session: _Session, first: bytes) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(session.socket, first)
        while True:
            await loop.sock_sendall(session.socket, await _message(reader))


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Read one message; one that has only begun to arrive is not lost when the reader is cancelled."""
    while True:
        buffered = reader._buffer  # type: ignore[attr-defined]
        if len(buffered) >= 5 and len(buffered) > struct.unpack("!I", bytes(buffered[1:5]))[0]:
            size = struct.unpack("!I", bytes(buffered[1:5]))[0]
            return await reader.readexactly(size + 1)
        if reader.at_eof():
            raise asyncio.IncompleteReadError(bytes(buffered), None)
        await reader._wait_for_data("message")  # type: ignore[attr-defined]


@asynccontextmanager
async def transaction_pooler(url: str, *, sessions: int = 3) -> AsyncIterator[tuple[str, TransactionPooler]]:
    """Run a pooler before the database of `url`; yield the URL of the pooler, and the pooler."""
    opened = [
        _Session(await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=None))
        for _ in range(sessions)
    ]
    pooler = TransactionPooler(opened)
    server = await asyncio.start_server(pooler.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
        yield f"postgresql://pointsman@127.0.0.1:{port}/{name}?sslmode=disable&gssencmode=disable", pooler
    finally:
        server.close()
        for session in opened:
            session.socket.close()
            await session.connection.close()
