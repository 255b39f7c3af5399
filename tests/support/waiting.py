"""Waiting for something that another task brings about."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait until `condition` holds; TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to offer
            await asyncio.sleep(0.005)
