"""Run coroutines at once and fail as one of them does, not as a group: what callers of a retriever expect."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from standard.tasks import task_group

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    import numpy as np
    from numpy.typing import NDArray

Result = TypeVar("Result")
First = TypeVar("First")
Second = TypeVar("Second")
Third = TypeVar("Third")


async def all_of(work: Sequence[Coroutine[object, object, Result]]) -> list[Result]:
    """Await all and return their results in order; on the first failure cancel the others and raise it."""
    async with task_group() as group:
        tasks = [group.create_task(item) for item in work]
    return [task.result() for task in tasks]


async def each_of(
    search: Callable[[str, NDArray[np.float32]], Coroutine[object, object, Result]],
    texts: Sequence[str],
    vectors: NDArray[np.float32],
    at_once: int,
) -> list[Result]:
    """Search for each text with its vector, `at_once` (or 1) at a time; results in order, errors as `all_of`'s.

    Raises ValueError where texts and vectors differ in number.
    """
    if len(texts) != len(vectors):
        raise ValueError(f"{len(texts)} texts need as many vectors, not {len(vectors)}")
    gate = asyncio.Semaphore(max(1, at_once))

    async def one(text: str, vector: NDArray[np.float32]) -> Result:
        async with gate:
            return await search(text, vector)

    return await all_of([one(text, vector) for text, vector in zip(texts, vectors, strict=True)])


async def three_of(
    first: Coroutine[object, object, First],
    second: Coroutine[object, object, Second],
    third: Coroutine[object, object, Third],
) -> tuple[First, Second, Third]:
    """As `all_of`, for three results of different types."""
    async with task_group() as group:
        tasks = (group.create_task(first), group.create_task(second), group.create_task(third))
    return tasks[0].result(), tasks[1].result(), tasks[2].result()
