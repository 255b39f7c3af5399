"""Waiting for the next part of an answer, and counting what came: no part comes late, and no answer is endless."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from router.upstream.failures import Malformed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from router.upstream.ending import Ending

MAX_CHARS: Final = 2_000_000
"""Longest answer."""


async def next_by(pieces: AsyncGenerator[str | Ending], deadline: float) -> str | Ending | None:
    """The next piece by the event loop's time `deadline`; None after the last. Raises TimeoutError."""
    async with asyncio.timeout_at(deadline):
        return await anext(pieces, None)


async def each_within(items: AsyncIterator[str], seconds: float) -> AsyncGenerator[str]:
    """The items; TimeoutError where none comes for `seconds`."""
    while True:
        async with asyncio.timeout(seconds):
            item = await anext(items, None)
        if item is None:
            return
        yield item


def counted(size: int, piece: str) -> int:
    """The size with this piece. Raises Malformed beyond MAX_CHARS."""
    if size + len(piece) > MAX_CHARS:
        raise Malformed(f"its answer is longer than {MAX_CHARS} characters")
    return size + len(piece)
