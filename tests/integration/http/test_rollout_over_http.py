"""The rollout over HTTP: its reason in the answer, and no failed request while the mode changes under load."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from router.decide import Rollout
from tests.integration.http.conftest import WHERE, serving, settings_for

if TYPE_CHECKING:
    from pathlib import Path


async def test_no_http_request_fails_while_the_mode_is_switched(database_url: str, tmp_path: Path) -> None:
    async with serving(settings_for(database_url, tmp_path, routing={"threshold": 0.0})) as served:
        policies = served.application.policies
        stop = asyncio.Event()
        seen: set[tuple[str, str]] = set()

        async def ask(worker: int) -> int:
            done = 0
            while not stop.is_set():
                answer = await served.post("/query", {"question": WHERE, "session_id": f"w{worker}"})
                assert answer.status_code == 200, answer.text
                body = answer.json()
                assert "shed" in body["answer"]
                seen.add((body["route"], body["decision"]["reason"]))
                done += 1
            return done

        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(ask(worker)) for worker in range(3)]
            for mode in (*Rollout, *Rollout):
                changed = replace(policies.own(""), rollout=mode, canary_percent=50.0)
                await policies.update("", changed, 0, by="test")
                await asyncio.sleep(0.3)
            stop.set()
        assert sum(worker.result() for worker in workers) > 10
        assert ("standard", "rollout") in seen
        assert "agentic" in {route for route, _ in seen}
