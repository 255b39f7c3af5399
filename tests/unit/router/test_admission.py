"""Places and the queue for them are bounded."""

from __future__ import annotations

import asyncio

import pytest

from router.access.admission import Admission
from router.telemetry.metrics import Metrics
from standard.domain.errors import Overloaded


async def hold(admission: Admission, release: asyncio.Event) -> None:
    async with admission.place():
        await release.wait()


async def test_beyond_places_and_queue_questions_are_refused_with_advice() -> None:
    metrics = Metrics()
    admission = Admission(2, 1, 5.0, metrics)
    release = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(hold(admission, release))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded) as caught:
            async with admission.place():
                pytest.fail("a third place was given")
        assert caught.value.retry_after_seconds is not None
        assert metrics.registry.get_sample_value("pointsman_inflight_requests") == 2
        release.set()
    assert metrics.registry.get_sample_value("pointsman_inflight_requests") == 0
    assert metrics.registry.get_sample_value("pointsman_shed_requests_total", {"reason": "queue_full"}) == 1


async def test_waiting_ends_with_overloaded() -> None:
    admission = Admission(1, 5, 0.02, Metrics())
    release = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(hold(admission, release))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            async with admission.place():
                pytest.fail("a second place was given")
        release.set()


async def test_a_cancelled_wait_leaves_no_trace() -> None:
    admission = Admission(1, 1, 5.0, Metrics())
    release = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(hold(admission, release))
        await asyncio.sleep(0)
        for _ in range(5):
            waiter = asyncio.create_task(hold(admission, release))
            await asyncio.sleep(0)
            waiter.cancel()
            await asyncio.wait([waiter])
        release.set()
    async with admission.place():
        pass
