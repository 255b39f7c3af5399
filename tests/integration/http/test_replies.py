"""A run that asked back over HTTP, and the ways in which a client's next message answers it."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.integration.http.conftest import Served, serving, settings_for
from tests.integration.router.test_resume import ANSWER, ASK, ENOUGH, WHO
from tests.support.model_server import ModelServer, Recorded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.model_server.behaviour import Behaviour

REPLY = "the bilge pump"


def script(request: Recorded) -> Behaviour:
    if request.streamed:
        return ANSWER
    return ENOUGH if REPLY in request.text("user") else ASK


@asynccontextmanager
async def asking(
    database_url: str, folder: Path, **sections: dict[str, Any]
) -> AsyncIterator[tuple[Served, ModelServer]]:
    """A gateway whose model asks which pump is meant, until it is told."""
    async with ModelServer(script) as model:
        llm = {"base_url": model.base_url, "model": "m", "retries": 0}
        async with serving(settings_for(database_url, folder, llm=llm, **sections)) as served:
            yield served, model


def chat(*messages: str, **more: object) -> dict[str, object]:
    roles = ("user", "assistant")
    spoken = [{"role": roles[at % 2], "content": text} for at, text in enumerate(messages)]
    return {"model": "pointsman-agentic", "messages": spoken, **more}


async def first_turn(served: Served, **headers: str) -> tuple[str, str]:
    """Ask, and return the run's id and what it asked back."""
    reply = await served.post("/v1/chat/completions", chat(WHO), **headers)
    body = reply.json()
    assert body["pointsman"]["outcome"] == "needs_clarification"
    return reply.headers["x-pointsman-run"], body["choices"][0]["message"]["content"]


async def test_the_run_that_is_named_by_its_header_goes_on_with_the_next_message(
    database_url: str, tmp_path: Path
) -> None:
    async with asking(database_url, tmp_path) as (served, _):
        run, asked = await first_turn(served)
        for _ in range(2):  # the same again is the same answer
            reply = await served.post("/v1/chat/completions", chat(WHO, asked, REPLY), x_pointsman_run=run)
            assert reply.headers["x-pointsman-run"] == run
            assert reply.json()["id"] == f"chatcmpl-{run}"
            assert reply.json()["choices"][0]["message"]["content"] == "The dockmaster signs for it."
        runs = await served.application.journal.load("default", run)
        assert runs is not None
        assert (runs.state, runs.question["replies"] if runs.question else None) == ("done", [REPLY])


async def test_a_stream_goes_on_after_the_question_back_and_does_not_repeat_it(
    database_url: str, tmp_path: Path
) -> None:
    async with asking(database_url, tmp_path) as (served, _):
        run, asked = await first_turn(served)
        body = chat(WHO, asked, REPLY, stream=True, pointsman={"run": run})
        lines = (await served.post("/v1/chat/completions", body)).text.splitlines()
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        said = "".join(each["choices"][0]["delta"].get("content") or "" for each in chunks if each["choices"])
        assert said == "The dockmaster signs for it."
        assert {each["id"] for each in chunks} == {f"chatcmpl-{run}"}


async def test_within_a_session_the_next_message_is_enough(database_url: str, tmp_path: Path) -> None:
    async with asking(database_url, tmp_path) as (served, _):
        run, asked = await first_turn(served, x_pointsman_session="talk")
        elsewhere = await served.post(
            "/v1/chat/completions", chat(WHO, "Which one?", REPLY), x_pointsman_session="talk"
        )
        assert elsewhere.headers["x-pointsman-run"] != run, "what it asked stands before the reply, or it is no reply"
        run, asked = await first_turn(served, x_pointsman_session="another")
        reply = await served.post("/v1/chat/completions", chat(WHO, asked, REPLY), x_pointsman_session="another")
        assert reply.headers["x-pointsman-run"] == run
        assert reply.json()["choices"][0]["message"]["content"] == "The dockmaster signs for it."


async def test_a_run_that_waits_for_nothing_makes_the_message_a_question_like_any_other(
    database_url: str, tmp_path: Path
) -> None:
    async with asking(database_url, tmp_path) as (served, _):
        for named in ("no-such-run", (await first_turn(served))[0] + "x"):
            reply = await served.post("/v1/chat/completions", chat(f"{WHO} I mean {REPLY}."), x_pointsman_run=named)
            assert reply.status_code == 200
            assert reply.headers["x-pointsman-run"] != named
        done = reply.headers["x-pointsman-run"]
        reply = await served.post("/v1/chat/completions", chat(f"What of {REPLY}?"), x_pointsman_run=done)
        assert reply.headers["x-pointsman-run"] != done
        refused = await served.post("/v1/chat/completions", chat(WHO), x_pointsman_run="a b")
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "pointsman.run"


async def test_a_query_goes_on_with_its_run_and_an_input(database_url: str, tmp_path: Path) -> None:
    async with asking(database_url, tmp_path) as (served, _):
        first = await served.post("/query", {"question": WHO, "route": "agentic"})
        assert first.json()["outcome"] == "needs_clarification"
        run = first.json()["request_id"]
        wrong = await served.post("/query", {"request_id": "nobody", "input": REPLY})
        assert (wrong.status_code, "waits for an input" in wrong.text) == (412, True)
        mixed = await served.post("/query", {"request_id": run, "input": REPLY, "question": WHO})
        assert mixed.status_code == 400
        done = await served.post("/query", {"request_id": run, "input": REPLY})
        assert (done.json()["request_id"], done.json()["answer"]) == (run, "The dockmaster signs for it.")
        lines = (
            await served.post("/query", {"request_id": run, "input": REPLY}, accept="application/x-ndjson")
        ).text.splitlines()
        assert "completed" in json.loads(lines[-1])


async def test_nobody_answers_a_question_that_was_asked_of_another(database_url: str, tmp_path: Path) -> None:
    from router.access.keys import create_key

    async with asking(database_url, tmp_path, auth={"mode": "keys"}) as (served, _):
        pool = served.application.pool
        crew = (await create_key(pool, "default", role="user", groups=["crew"]))[0]
        guest = (await create_key(pool, "default", role="user"))[0]
        run, asked = await first_turn(served, authorization=f"Bearer {crew}", x_pointsman_session="talk")
        for named in ({"x_pointsman_run": run}, {"x_pointsman_session": "talk"}):
            reply = await served.post(
                "/v1/chat/completions", chat(WHO, asked, REPLY), authorization=f"Bearer {guest}", **named
            )
            assert reply.headers["x-pointsman-run"] != run
        stored = await served.application.journal.load("default", run)
        assert stored is not None
        assert stored.state == "waiting"
