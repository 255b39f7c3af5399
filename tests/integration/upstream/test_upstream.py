"""An existing RAG as the standard route or behind it: passed through as it comes, and never missed when it fails."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from router.settings import BadSettings
from tests.integration.http.conftest import WHERE, Served, serving, settings_for
from tests.integration.upstream.legacy import Legacy, Says, told
from tests.support.model_server import Failure, ModelServer, Reply, always
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED = {"question": WHERE, "route": "standard"}
QUICK: dict[str, Any] = {
    "contract": "plain",
    "use": "standard",
    "timeout_seconds": 10.0,
    "connect_timeout_seconds": 1.5,
    "first_byte_timeout_seconds": 1.5,
    "idle_timeout_seconds": 1.5,
    "retries": 0,
}


@asynccontextmanager
async def ours(
    url: str, database_url: str, folder: Path, upstream: dict[str, Any] | None = None, **sections: dict[str, Any]
) -> AsyncIterator[Served]:
    section = QUICK | {"url": url} | (upstream or {})
    async with serving(settings_for(database_url, folder, upstream=section, **sections)) as served:
        yield served


@pytest.mark.parametrize("name", ["plain", "langserve", "dify", "r2r"])
async def test_an_endpoint_of_every_shipped_contract_is_passed_through(
    module_database_url: str, tmp_path: Path, name: str
) -> None:
    """The legacy endpoint is a real one: another gateway that serves the contract."""
    words = ("It is ", "in the shed ", "at Alder Wharf.")
    async with (
        ModelServer(always(Reply(pieces=(*words, " [S1]"), token_delay=0.05))) as model,
        serving(
            settings_for(
                module_database_url,
                tmp_path / "legacy",
                http={"contracts": (name,)},
                llm={"base_url": model.base_url, "model": "m"},
                routing={"escalate": False},
            )
        ) as legacy,
        ours(legacy.url, module_database_url, tmp_path / "ours", {"contract": name, "timeout_seconds": 20.0}) as served,
    ):
        body = ASKED | {"history": [{"role": "user", "text": "Hello."}, {"role": "assistant", "text": "Hello!"}]}
        answer = (await served.post("/query", body)).json()
        assert answer["answer"].strip() == "It is in the shed at Alder Wharf."
        assert answer["answer_source"] == "upstream"
        assert answer["outcome"] == "answered"
        streamed = await served.post("/query", body, accept="application/x-ndjson")
        events = [json.loads(line) for line in streamed.text.splitlines()]
        assert sum("token" in event for event in events) >= 2


async def test_words_leave_as_they_come(module_database_url: str, tmp_path: Path) -> None:
    words = tuple(f"word{number} " for number in range(10))
    async with (
        Legacy([Says(told(*words), pause=0.05)]) as legacy,
        ours(legacy.url, module_database_url, tmp_path) as served,
        served.client.stream("POST", "/query", json=ASKED, headers={"accept": "text/event-stream"}) as response,
    ):
        arrived = [time.perf_counter() async for line in response.aiter_lines() if line.startswith("event: token")]
    assert len(arrived) == len(words)
    assert arrived[-1] - arrived[0] > 0.3
    assert legacy.bodies[0] == {"question": WHERE, "top_k": 5, "stream": True, "history": []}


BAD = {
    "a page of HTML": Says(("<html>Login</html>",), content_type="text/html"),
    "an error": Says(("no",), status=500),
    "a refusal": Says(("no",), status=403),
    "a redirect": Says((), status=302),
    "silence": Says(silent=True),
    "silence after the head": Says(hang=True),
    "nothing": Says(()),
    "an end without words": Says(told()),
    "a cut before a word": Says(cut=True),
    "broken JSON": Says(("{\n",)),
    "another JSON": Says(('{"result": 1}',), content_type="application/json"),
    "a told error": Says((json.dumps({"type": "error", "error": "x"}) + "\n",)),
    "an endless line": Says(("x" * 1_000_000,) * 6),
}


@pytest.mark.parametrize("what", BAD)
async def test_ours_answers_where_the_upstream_gives(module_database_url: str, tmp_path: Path, what: str) -> None:
    async with (
        Legacy([BAD[what]]) as legacy,
        ours(legacy.url, module_database_url, tmp_path) as served,
    ):
        began = time.perf_counter()
        answer = (await served.post("/query", ASKED)).json()
        assert "shed at Alder Wharf" in answer["answer"]
        assert answer["answer_source"] == "extractive"
        assert time.perf_counter() - began < 6.0
        events = (await served.post("/query", ASKED, accept="application/x-ndjson")).text
        assert '"dependency":"upstream"' in events
        assert len(legacy.bodies) == 2


async def test_ours_answers_where_nobody_listens(module_database_url: str, tmp_path: Path) -> None:
    async with ours("http://127.0.0.1:9", module_database_url, tmp_path, {"retries": 1}) as served:
        answer = (await served.post("/query", ASKED)).json()
        assert answer["answer_source"] == "extractive"


@pytest.mark.parametrize(
    "ending", [Says(told("It is ", "in ")[:2], cut=True), Says(told("It is ", "in ")[:2], hang=True)]
)
async def test_what_came_before_a_break_stays(module_database_url: str, tmp_path: Path, ending: Says) -> None:
    async with (
        Legacy([ending]) as legacy,
        ours(legacy.url, module_database_url, tmp_path, {"retries": 3}) as served,
    ):
        answer = (await served.post("/query", ASKED)).json()
        assert answer["answer"] == "It is in "
        assert answer["outcome"] == "answered_with_caveat"
        assert any("broke off" in notice for notice in answer["notices"])
        assert len(legacy.bodies) == 1  # no word is said twice


async def test_a_busy_upstream_is_tried_again_and_a_failing_one_left_alone(
    module_database_url: str, tmp_path: Path
) -> None:
    fine, busy = Says(told("Yes.")), Says(status=503)
    upstream = {"retries": 1, "breaker_failures": 2, "breaker_seconds": 0.5, "retry_budget": 0.5}
    async with (
        Legacy([busy, fine, busy, busy, fine]) as legacy,
        ours(legacy.url, module_database_url, tmp_path, upstream) as served,
    ):
        assert (await served.post("/query", ASKED)).json()["answer"] == "Yes."
        assert len(legacy.bodies) == 2
        assert (await served.post("/query", ASKED)).json()["answer_source"] == "extractive"
        assert len(legacy.bodies) == 4
        assert (await served.post("/query", ASKED)).json()["answer_source"] == "extractive"
        assert len(legacy.bodies) == 4  # left alone
        await served.application.health.check()
        assert served.application.health.state["upstream"] is False
        assert served.application.health.serving
        await asyncio.sleep(0.6)
        assert (await served.post("/query", ASKED)).json()["answer_source"] == "upstream"


async def test_a_client_that_leaves_ends_the_call_of_the_upstream(module_database_url: str, tmp_path: Path) -> None:
    async with (
        Legacy([Says(told("It is ")[:1], hang=True)]) as legacy,
        ours(legacy.url, module_database_url, tmp_path, {"idle_timeout_seconds": 30.0}) as served,
    ):
        call = asyncio.create_task(served.client.post("/query", json=ASKED))
        await until(lambda: legacy.bodies)
        await asyncio.sleep(0.1)
        call.cancel()
        await asyncio.wait([call])
        await until(lambda: legacy.gone == 1, 2.0)


async def test_the_agentic_route_is_not_the_upstreams(module_database_url: str, tmp_path: Path) -> None:
    async with Legacy([Says(told("Yes."))]) as legacy, ours(legacy.url, module_database_url, tmp_path) as served:
        answer = (await served.post("/query", {"question": WHERE, "route": "agentic"})).json()
        assert answer["answer_source"] == "extractive"
        assert legacy.bodies == []


async def test_behind_ours_it_stands_in_for_a_model_that_failed(module_database_url: str, tmp_path: Path) -> None:
    async with (
        ModelServer([Reply("It is in the shed [S1]."), *[Failure(500)] * 9]) as model,
        Legacy([Says(told("In the ", "shed.")), Says(status=500)]) as legacy,
        ours(
            legacy.url,
            module_database_url,
            tmp_path,
            {"use": "fallback"},
            llm={"base_url": model.base_url, "model": "m", "retries": 0},
        ) as served,
    ):
        assert (await served.post("/query", ASKED)).json()["answer_source"] == "generated"
        assert legacy.bodies == []
        stood_in = (await served.post("/query", ASKED)).json()
        assert (stood_in["answer"], stood_in["answer_source"]) == ("In the shed.", "upstream")
        assert stood_in["outcome"] == "answered_with_caveat"
        assert any("language model did not answer" in notice for notice in stood_in["notices"])
        neither = (await served.post("/query", ASKED)).json()
        assert neither["answer_source"] == "extractive"
        assert "shed at Alder Wharf" in neither["answer"]


async def test_the_key_is_sent_and_shown_nowhere(
    module_database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        Legacy([Says(status=401)]) as legacy,
        ours(legacy.url, module_database_url, tmp_path, {"api_key": "hush-hush"}) as served,
    ):
        answer = await served.post("/query", ASKED)
        assert "authorization: Bearer hush-hush" in legacy.heads[0]
    shown = capsys.readouterr()
    assert "hush-hush" not in answer.text + shown.out + shown.err


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"url": "legacy:80", "contract": "plain"}, "upstream.url"),
        ({"url": "http://x", "contract": ""}, "upstream.contract"),
        ({"url": "http://x", "contract": "nothing"}, "http.contracts"),
        ({"url": "http://x", "contract": "plain", "path": "/other"}, "upstream.contract"),
    ],
)
async def test_a_wrong_upstream_stops_the_start(
    module_database_url: str, tmp_path: Path, section: dict[str, Any], key: str
) -> None:
    with pytest.raises(BadSettings, match=key):
        async with serving(settings_for(module_database_url, tmp_path, upstream=section)):
            pass
