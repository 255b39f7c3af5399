"""A way to a real PostgreSQL that can hang: connections are taken, and nothing passes until it goes on."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict, make_conninfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Passage:
    """`url` leads to the database. While `goes_on` is not set, bytes wait."""

    def __init__(self) -> None:
        self.url = ""
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes on in one direction until its end."""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                await self.goes_on.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close it, whatever its other end does."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@asynccontextmanager
async def passage_to(database_url: str) -> AsyncIterator[Passage]:
    """Open the way; its connections end with the block."""
    parts = conninfo_to_dict(database_url)
    host, port = str(parts["host"]), str(parts.get("port", 5432))
    passage = Passage()
    passing: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        passing.add(task)
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(passing.discard, task)
            stack.push_async_callback(closed, writer)
            if host.startswith("/"):
                ahead, back = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
            else:
                ahead, back = await asyncio.open_connection(host, int(port))
            stack.push_async_callback(closed, back)
            with contextlib.suppress(asyncio.CancelledError):
                async with asyncio.TaskGroup() as both:
                    both.create_task(passage.pass_on(reader, back))
                    both.create_task(passage.pass_on(ahead, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        passage.url = make_conninfo(
            database_url, host="127.0.0.1", port=server.sockets[0].getsockname()[1], sslmode="disable"
        )
        yield passage
    finally:
        server.close()
        for task in passing:
            task.cancel()
        if passing:
            await asyncio.wait(passing)
