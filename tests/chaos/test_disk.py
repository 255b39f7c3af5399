"""The disk of the embedded PostgreSQL is full: what needs no room goes on, the rest says so, and all is there after."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

import grpc
import psycopg
import pytest
import pytest_asyncio
from pointsman.client import new_request_id, question
from pointsman.v1 import corpus_pb2
from psycopg.conninfo import make_conninfo

from standard.database.embedded import DATABASE, ROLE
from standard.database.postmaster import read_postmaster
from tests.chaos.gateway_process import TYPED, WHERE, Served, gateway, with_disk
from tests.chaos.survival import NOT_SERVING, SERVING, becomes, survives

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.support.model_server import ModelServer

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]
DISK_BYTES = 320 * 1024 * 1024
LARGE = "A crate of lamps came in from Cold Haven with the evening ferry. " * 1000
"""More than the last pages of the tables have room for."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def small(tmp_path_factory: pytest.TempPathFactory, model: ModelServer) -> AsyncIterator[Served]:
    """A gateway whose data directory is a disk of its own, and a small one."""
    folder = tmp_path_factory.mktemp("disk")
    tried = subprocess.run([*with_disk(folder, DISK_BYTES), "true"], capture_output=True, text=True, check=False)  # noqa: ASYNC221 - before anything runs
    if tried.returncode != 0:
        pytest.skip(f"no disk of one's own can be had here: {tried.stderr.strip()}")
    async with gateway(folder, model=model, disk_bytes=DISK_BYTES) as running:
        for _ in range(8):
            await running.client.answer(WHERE)
        yield running


@contextlib.contextmanager
def full(served: Served) -> Iterator[None]:
    """Fill the disk to its last byte; the block's end makes room again."""
    filler = served.data / "filler"
    block = b"\0" * 65536
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(block)
    try:
        assert os.statvfs(served.data).f_bavail * os.statvfs(served.data).f_frsize < len(block)
        yield
    finally:
        filler.unlink()


async def test_what_needs_no_room_goes_on_while_tables_have_none(small: Served) -> None:
    asked = question(WHERE, request_id=new_request_id())
    answer = await small.client.answer(asked)
    async with survives(small, within_seconds=10) as fault:
        async with await psycopg.AsyncConnection.connect(url_of(small), autocommit=True) as other:
            for _ in range(3):  # segments of the log that were used are kept for later, so that tables run out first
                await other.execute("select pg_logical_emit_message(true, 'ballast', 'x')")
                await other.execute("select pg_switch_wal()")
            await other.execute("checkpoint")
        with full(small):
            for _ in range(100):  # what room there is within the tables' last pages is used up
                if grpc.StatusCode.OK not in await fault.ask(2):
                    break
            await fault.ingest(2)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await small.client.ingest([corpus_pb2.Document(id="large", text=LARGE)], timeout_seconds=20)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "the database's disk is full" in (caught.value.details() or "")
            # No answer is given that the journal did not take; those it has, searches and decisions need no room.
            assert await fault.ask(4) <= TYPED
            assert await small.client.answer(asked) == answer
            search = corpus_pb2.SearchPassagesRequest(query=WHERE)
            assert (await small.client.corpus.SearchPassages(search, timeout=5)).passages
            assert (await small.client.classify(WHERE)).decision.complex_probability >= 0.0
            assert await small.health() == SERVING


async def test_a_log_without_room_ends_the_server_until_there_is_some(small: Served) -> None:
    async with survives(small, within_seconds=20) as fault:
        with full(small):
            await fault.ingest(2)
            await write_ahead(small)
            await becomes(small, NOT_SERVING)
            assert await fault.ask(8) <= TYPED
            await fault.ingest()
            await asyncio.sleep(5)  # its keeper tries all the while
            assert await small.health() == NOT_SERVING


async def write_ahead(served: Served) -> None:
    """Write into the log, as other users of the server would, until it has no room and the server ends."""
    with contextlib.suppress(psycopg.OperationalError):
        async with await psycopg.AsyncConnection.connect(url_of(served), autocommit=True) as other:
            for _ in range(400):
                await other.execute("select pg_logical_emit_message(true, 'ballast', repeat('x', 1000000))")
            pytest.fail("the log never ran out of room")


def url_of(served: Served) -> str:
    """The URL of its PostgreSQL, as seen from outside of the disk."""
    base = served.data / "postgres"
    running = read_postmaster(base / "cluster")
    assert running is not None
    folder = running.socket_folder
    return make_conninfo(
        host=f"/proc/{served.process.pid}/root{folder}" if folder else "127.0.0.1",
        port=running.port,
        user=ROLE,
        password=(base / "password").read_text().strip(),
        dbname=DATABASE,
    )
