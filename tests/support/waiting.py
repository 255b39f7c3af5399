"""Waiting for something that another task brings about."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Found = TypeVar("Found")


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait until `condition` holds; TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to offer
            await asyncio.sleep(0.005)


async def eventually(look: Callable[[], Awaitable[Found | None]], seconds: float = 5.0) -> Found:
    """Wait until `look`, which awaits something itself, finds what is true, and return it; TimeoutError."""
    async with asyncio.timeout(seconds):
        while not (found := await look()):  # noqa: ASYNC110 - what is waited for has no event to offer
            await asyncio.sleep(0.02)
    return found
