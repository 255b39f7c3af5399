"""Task groups whose errors come out as they are.

asyncio's TaskGroup wraps whatever goes wrong, the caller's own exception included, in an ExceptionGroup; whoever
expects an error of our tree would miss it. Here the one error that a caller should see comes out bare.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar, cast

from standard.domain.errors import PointsmanError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Failure = TypeVar("Failure", bound=BaseException)


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup; when anything in it fails the rest is cancelled and `first_error` of what went wrong is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None


def first_error(group: BaseExceptionGroup[Failure]) -> Failure:
    """The one error of a group that a caller should see: ours before others, cancellations last."""
    flat: list[Failure] = []

    def collect(within: BaseExceptionGroup[Failure]) -> None:
        for error in within.exceptions:
            if isinstance(error, BaseExceptionGroup):
                collect(cast("BaseExceptionGroup[Failure]", error))
            else:
                flat.append(error)

    collect(group)
    return min(
        flat, key=lambda error: (not isinstance(error, PointsmanError), isinstance(error, asyncio.CancelledError))
    )
