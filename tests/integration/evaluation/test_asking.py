"""A measured question goes the way that a served one goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.evaluation.answers.asking import Arm, Asker, Place
from router.evaluation.answers.questions import AskedQuestion
from standard.domain.passage import Scope
from standard.domain.question import Route
from tests.integration.router.conftest import fill, running, settings_for
from tests.integration.upstream.legacy import Legacy, Says, told
from tests.support.model_server import ModelServer, Recorded, Reply

if TYPE_CHECKING:
    from pathlib import Path

ASKED = AskedQuestion("q", "When is the harbour lantern lit?")
PLACE = Place("set", Scope(), by_title=False)
SINGLE = Arm("single", Route.STANDARD)


async def test_an_upstream_that_takes_the_standard_route_takes_it_here_too(database_url: str, tmp_path: Path) -> None:
    async with Legacy([Says(told("At ", "dusk."))]) as legacy:
        upstream = {"url": legacy.url, "contract": "plain", "use": "standard", "retries": 0}
        async with running(settings_for(database_url, tmp_path, upstream=upstream)) as served:
            await fill(served.client)
            record = await Asker(served.application, top_k=5).ask(ASKED, PLACE, SINGLE)
    assert record.answer == "At dusk."


async def test_both_routes_ask_under_the_one_canary_of_the_process(database_url: str, tmp_path: Path) -> None:
    asked: list[str] = []

    def script(request: Recorded) -> Reply:
        asked.append(request.text("system").splitlines()[0].strip("[]"))
        return Reply("It is lit at dusk [S1].")

    async with ModelServer(script) as model:
        llm = {"base_url": model.base_url, "model": "scripted", "retries": 0}
        async with running(settings_for(database_url, tmp_path, llm=llm)) as served:
            await fill(served.client)
            asker = Asker(served.application, top_k=5)
            for arm in (SINGLE, Arm("loop", Route.AGENTIC, "decide")):
                before = len(asked)
                await asker.ask(ASKED, PLACE, arm)
                assert len(asked) > before
    (canary,) = set(asked)
    assert len(canary) == 32
