"""What callers with keys see in the console: their own tenant, and of others' questions only what their role allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from router.access.keys import create_key
from tests.integration.http.conftest import WHERE, Served, serving, settings_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio(loop_scope="module")

READS = ("about", "runs", "runs/asked-1", "routing", "collections", "dependencies")


class Callers:
    """A served application that asks for keys, with a key for each kind of caller."""

    def __init__(self, served: Served, keys: dict[str, str]) -> None:
        self.served = served
        self.keys = keys

    async def get(self, who: str, path: str) -> tuple[int, Any]:
        response = await self.served.client.get(f"/console/api/{path}", headers=self.bearer(who))
        return response.status_code, response.json()

    def bearer(self, who: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[who]}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def callers(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Callers]:
    settings = settings_for(module_database_url, tmp_path_factory.mktemp("keys"), auth={"mode": "keys"})
    async with serving(settings) as served:
        pool = served.application.pool
        keys = {
            "user": (await create_key(pool, "default", role="user"))[0],
            "admin": (await create_key(pool, "default", role="admin"))[0],
            "elsewhere": (await create_key(pool, "elsewhere", role="admin"))[0],
            "narrow": (await create_key(pool, "default", role="user", collections=["other"]))[0],
        }
        opened = Callers(served, keys)
        for number in range(3):
            body = {"question": f"{WHERE} {number}", "request_id": f"asked-{number}"}
            response = await served.client.post("/query", json=body, headers=opened.bearer("user"))
            assert response.status_code == 200
        yield opened


async def test_the_page_is_open_and_what_it_shows_is_not(callers: Callers) -> None:
    for path in ("/", "/console/main.js", "/console/console.css"):
        assert (await callers.served.client.get(path)).status_code == 200
    for path in READS:
        refused = await callers.served.client.get(f"/console/api/{path}")
        assert (refused.status_code, refused.json()["error"]["reason"]) == (401, "UNAUTHENTICATED")


async def test_an_admin_reads_what_was_asked_and_its_trace(callers: Callers) -> None:
    status, page = await callers.get("admin", "runs")
    assert status == 200
    assert [run["question"] for run in page["runs"]] == [f"{WHERE} {number}" for number in (2, 1, 0)]
    status, trace = await callers.get("admin", "runs/asked-1")
    assert (status, trace["question"]) == (200, f"{WHERE} 1")


async def test_a_user_reads_how_runs_went_and_neither_questions_nor_ids_nor_traces(callers: Callers) -> None:
    status, page = await callers.get("user", "runs")
    assert status == 200
    assert len(page["runs"]) == 3
    for run in page["runs"]:
        assert (run["question"], run["request_id"]) == (None, None)
        assert run["outcome"]
    assert (await callers.get("user", "runs/asked-1"))[0] == 403
    assert (await callers.get("user", "runs/never-asked"))[0] == 403  # the same, so that it tells nothing
    status, about = await callers.get("user", "about")
    assert (status, about["admin"]) == (200, False)


async def test_another_tenant_sees_nothing_of_it(callers: Callers) -> None:
    assert (await callers.get("elsewhere", "runs"))[1]["runs"] == []
    assert (await callers.get("elsewhere", "runs/asked-1"))[0] == 404
    status, counts = await callers.get("elsewhere", "routing")
    assert (status, counts["runs"], sum(counts["bins"])) == (200, 0, 0)
    assert (await callers.get("elsewhere", "collections"))[1]["collections"] == []
    # Nor does a page token of another tenant's list get it there.
    token = (await callers.get("admin", "runs?limit=1"))[1]["next_page_token"]
    assert (await callers.get("elsewhere", f"runs?page_token={token}"))[1]["runs"] == []


async def test_a_key_for_other_collections_is_told_of_none_but_those(callers: Callers) -> None:
    assert (await callers.get("narrow", "collections"))[1]["collections"] == []
    assert [each["name"] for each in (await callers.get("user", "collections"))[1]["collections"]] == ["default"]


async def test_only_an_admin_saves_and_only_for_their_own_tenant(callers: Callers) -> None:
    write = {"x-pointsman-console": "1"}
    body = {"threshold": 0.2, "expected_version": 0}
    before = callers.served.application.policies.policy("default").threshold
    refused = await callers.served.client.put(
        "/console/api/threshold", json=body, headers=write | callers.bearer("user")
    )
    assert (refused.status_code, refused.json()["error"]["reason"]) == (403, "PERMISSION_DENIED")
    saved = await callers.served.client.put(
        "/console/api/threshold", json=body, headers=write | callers.bearer("elsewhere")
    )
    assert saved.status_code == 200
    assert callers.served.application.policies.policy("default").threshold == before
    assert callers.served.application.policies.policy("elsewhere").threshold == 0.2
