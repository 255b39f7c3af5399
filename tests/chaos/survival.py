"""What holds after every fault: typed errors only, nothing left behind, back within seconds, nothing acknowledged lost.

    async with survives(served, within_seconds=15) as fault:
        kill_something()
        await fault.ask(8)
        await fault.ingest(2)

The block's end waits until the gateway answers again by itself, and then asserts all four.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health_pb2
from pointsman.client import new_request_id, question
from pointsman.v1 import corpus_pb2

from tests.chaos.gateway_process import TYPED, WHERE, Served, code_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
MORE_BYTES = 30_000_000
"""How much more memory a process may hold after a fault of seconds; the soak is stricter, over minutes."""
_COLLECTION = "arrivals"


class Fault:
    """Calls made while something is broken, and what became of them."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.codes: Counter[grpc.StatusCode] = Counter()
        self.acknowledged: list[str] = []

    async def ask(self, count: int, *, seconds: float = 3.0) -> set[grpc.StatusCode]:
        """Ask so many questions at once, each with that deadline; how they ended."""
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(code_of(self.served.client.answer(WHERE, timeout_seconds=seconds)))
                for _ in range(count)
            ]
        ended = Counter(call.result() for call in calls)
        self.codes += ended
        return set(ended)

    async def ingest(self, count: int = 1, *, seconds: float = 5.0, text: str = "A crate of lamps came in.") -> None:
        """Bring documents in, one a call and one after another; those that are acknowledged must be there after."""
        for _ in range(count):
            name = new_request_id()
            document = corpus_pb2.Document(id=name, title=name, text=f"{text} Its number is {name}.")
            call = self.served.client.ingest([document], collection=_COLLECTION, timeout_seconds=seconds)
            code = await code_of(call)
            self.codes[code] += 1
            if code is grpc.StatusCode.OK:
                self.acknowledged.append(name)

    async def is_whole(self) -> None:
        """Every document that was acknowledged is there."""
        for name in self.acknowledged:
            request = corpus_pb2.GetDocumentRequest(collection=_COLLECTION, id=name)
            found = await self.served.client.corpus.GetDocument(request, timeout=10)
            assert name in found.document.text


@asynccontextmanager
async def survives(
    served: Served, *, within_seconds: float = 15.0, sockets: int = 8, settled_within_seconds: float = 30.0
) -> AsyncIterator[Fault]:
    """Break something in the block; at its end the gateway must come back by itself, whole and with nothing left over.

    `within_seconds` of the block's end it answers again; `sockets` more may be held than before.
    """
    fault = Fault(served)
    await fault.ingest()
    assert fault.acknowledged
    request = question(WHERE, request_id=new_request_id())
    answer = await served.client.answer(request)
    await served.is_idle()
    before = await served.footprint()
    pid = served.process.pid
    yield fault
    await served.recovers(within_seconds=within_seconds)
    assert set(fault.codes) <= TYPED | {grpc.StatusCode.OK}, fault.codes
    await becomes(served, SERVING)
    assert await served.client.answer(request) == answer
    await fault.is_whole()
    await served.is_idle()
    after = await served.settles(before, sockets=sockets, within_seconds=settled_within_seconds)
    assert after.bytes <= before.bytes + MORE_BYTES, (before, after)
    assert (served.process.pid, served.process.returncode) == (pid, None)


async def becomes(served: Served, status: int, *, within_seconds: float = 20.0) -> None:
    """Wait until health says so."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_seconds
    while await served.health() != status:
        assert loop.time() < until
        await asyncio.sleep(0.2)
