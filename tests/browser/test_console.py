"""The console in a real browser: asked with the keyboard, watched, stopped, tried, saved, read by all eyes."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import pytest

from router.access.auth import FRESH_SECONDS
from router.access.keys import create_key, revoke_key
from standard.corpus.document import SourceDocument
from tests.browser.browser import ARTIFACTS, open_page
from tests.browser.reading import contrasts, focused, tab_order, unnamed
from tests.integration.http.conftest import WHERE, Served, serving, settings_for
from tests.support.corpora import stream
from tests.support.llm_rig import until_gone
from tests.support.model_server import ModelServer, Reply, always
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Browser, Page

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.browser]

BOTH = "Who signs for the spare bilge pump, and who is the deputy of the dockmaster?"
Scheme = Literal["light", "dark"]


@asynccontextmanager
async def with_model(model: ModelServer, url: str, folder: Path, **sections: dict[str, Any]) -> AsyncIterator[Served]:
    llm = {"base_url": model.base_url, "model": "m", "retries": 0}
    async with serving(settings_for(url, folder, llm=llm, **sections)) as served:
        yield served


async def loaded(page: Page) -> None:
    """Wait until every section has read what it shows."""
    await page.get_by_text("The gateway serves.").wait_for()
    await page.locator("#histogram svg").wait_for()
    await page.locator("#collections table").wait_for()


async def ask(page: Page, question: str) -> None:
    await page.get_by_label("Question", exact=True).fill(question)
    await page.get_by_role("button", name="Ask").click()


async def ended(page: Page) -> str:
    """Wait for the end of a run and return what the status says of it."""
    status = page.locator("#ask-status")
    await page.wait_for_function(
        "() => /route:|failed|Stopped/.test(document.getElementById('ask-status').textContent)"
    )
    return await status.inner_text()


async def picture(page: Page, name: str) -> None:
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    await page.evaluate("() => { document.activeElement?.blur(); window.scrollTo(0, 0); }")
    await page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)


async def test_a_question_is_asked_and_watched_to_its_citations(browser: Browser, served: Served) -> None:
    async with open_page(browser, served.url) as watched:
        page = watched.page
        await loaded(page)
        await page.get_by_label("Question", exact=True).fill(BOTH)
        await page.get_by_label("Route").select_option("agentic")
        await page.get_by_label("Threshold", exact=True).fill("0.4")
        await page.get_by_label("Question", exact=True).press("Control+Enter")
        assert "agentic route" in await ended(page)
        assert "as the request said: probability" in await page.locator("#decision").inner_text()
        assert await page.locator("#steps > li").count() >= 3
        assert await page.locator("#steps .found").count() >= 1
        assert "Alder Wharf" in await page.locator("#answer").inner_text()
        assert await page.locator("#citations > li").count() >= 1
        # The quotation under a mark is what the marked part rests on.
        await page.locator("#answer sup a").first.click()
        assert await page.evaluate("() => location.hash") == "#citation-1"
        first = page.locator("#runs-list > li").first
        await first.get_by_text(BOTH).wait_for()
        assert watched.wrong == []


@pytest.mark.parametrize(
    ("name", "scheme", "width"), [("light", "light", 1100), ("dark", "dark", 1100), ("narrow", "light", 320)]
)
async def test_it_can_be_read_in_light_and_dark_and_on_a_narrow_screen(
    browser: Browser, served: Served, name: str, scheme: Scheme, width: int
) -> None:
    for question in (WHERE, "When is high water at Alder Wharf?", "What does the lantern burn?"):
        assert (await served.post("/query", {"question": question})).status_code == 200
    async with open_page(browser, served.url, scheme=scheme, width=width) as watched:
        page = watched.page
        await loaded(page)
        await page.get_by_label("Route").select_option("agentic")
        await ask(page, BOTH)
        await ended(page)
        await page.get_by_role("button", name=f"Trace of {BOTH}").first.click()
        await page.locator("#runs-list .trace").wait_for()
        await page.locator("#try").fill("0.3")
        await page.get_by_text("The histogram as a table").click()
        await picture(page, name)
        weak = [each for each in await contrasts(page) if each.ratio < each.needed]
        assert weak == []
        assert await unnamed(page) == []
        assert await page.evaluate("() => document.documentElement.scrollWidth") <= width
        # A problem is shown as well as everything else.
        await ask(page, "?")
        await page.locator("#notices .error").wait_for()
        await picture(page, f"{name}-problem")
        assert [each for each in await contrasts(page) if each.ratio < each.needed] == []
        assert watched.unexpected("400") == []


async def test_a_screen_reader_finds_its_way(browser: Browser, served: Served) -> None:
    async with open_page(browser, served.url) as watched:
        page = watched.page
        await loaded(page)
        for role in ("banner", "main", "contentinfo", "navigation"):
            assert await page.get_by_role(role).count() == 1, role
        for name in ("Ask", "Recent runs", "Routing", "Corpus and dependencies"):
            assert await page.get_by_role("region", name=name, exact=True).count() == 1
        assert await page.evaluate("() => document.documentElement.lang") == "en"
        levels = await page.evaluate("() => [...document.querySelectorAll('h1,h2,h3')].map((each) => +each.tagName[1])")
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(below <= above + 1 for above, below in pairwise(levels))
        assert await page.get_by_role("slider", name=re.compile("Threshold to try")).count() == 1
        assert await page.get_by_role("img", name=re.compile("Histogram")).count() == 1
        assert await page.locator("#steps").get_attribute("aria-live") == "polite"
        assert await page.locator("#answer").get_attribute("aria-live") == "polite"


async def test_the_keyboard_alone_reaches_everything_and_shows_where_it_is(browser: Browser, served: Served) -> None:
    async with open_page(browser, served.url) as watched:
        page = watched.page
        await loaded(page)
        order = await tab_order(page)
        ids = [each["id"] for each in order]
        assert ids[:6] == ["#main", "#ask", "#runs", "#routing", "#corpus", "question"]
        wanted = ["question", "collection", "route", "ask-threshold", "ask-button", "runs-refresh", "routing-refresh",
                  "try", "corpus-refresh"]  # fmt: skip
        assert [each for each in ids if each in wanted] == wanted
        for each in order:
            assert each["outlined"], each
            assert each["inside"], each
            assert not each["covered"], each
            assert each["height"] >= 24, each  # the least size of a target


async def test_a_question_is_asked_a_threshold_tried_and_saved_without_a_mouse(
    browser: Browser, database_url: str, tmp_path: Path
) -> None:
    async with serving(settings_for(database_url, tmp_path)) as own, open_page(browser, own.url) as watched:
        page = watched.page
        await page.get_by_text("The gateway serves.").wait_for()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")  # skips to the question
        await page.keyboard.press("Tab")
        assert (await focused(page) or {})["id"] == "question"
        await page.keyboard.type(WHERE)
        await page.keyboard.press("Control+Enter")
        assert "route:" in await ended(page)
        await page.get_by_text("1 with a choice by probability").wait_for()
        await page.locator("#try").focus()
        await page.keyboard.press("Home")
        assert "1 of 1 (100%) would have gone" in await page.locator("#try-share").inner_text()
        await page.keyboard.press("End")
        assert "0 of 1 (0%) would have gone" in await page.locator("#try-share").inner_text()
        await page.keyboard.press("ArrowLeft")
        await page.keyboard.press("Tab")
        assert (await focused(page) or {})["id"] == "save-button"
        await page.keyboard.press("Enter")
        await page.get_by_text("Saved: 0.99 is in force as version 1.").wait_for()
        assert own.application.policies.policy("default").threshold == 0.99
        assert watched.wrong == []


async def test_who_saves_second_is_told_and_can_save_again(browser: Browser, database_url: str, tmp_path: Path) -> None:
    async with (
        serving(settings_for(database_url, tmp_path)) as own,
        open_page(browser, own.url) as first,
        open_page(browser, own.url) as second,
    ):
        await loaded(first.page)
        await loaded(second.page)
        await first.page.locator("#try").fill("0.2")
        await first.page.get_by_role("button", name="Save this threshold").click()
        await first.page.get_by_text("Saved: 0.2 is in force").wait_for()
        await second.page.locator("#try").fill("0.8")
        await second.page.get_by_role("button", name="Save this threshold").click()
        await second.page.get_by_text("Not saved: somebody saved the policy meanwhile").wait_for()
        assert "version 1 with threshold 0.2" in await second.page.locator("#save-status").inner_text()
        assert own.application.policies.policy("default").threshold == 0.2
        await second.page.get_by_role("button", name="Save this threshold").click()
        await second.page.get_by_text("Saved: 0.8 is in force as version 2.").wait_for()
        assert second.unexpected("409") == []


async def test_words_are_shown_as_they_come(browser: Browser, database_url: str, tmp_path: Path) -> None:
    words = "The spare bilge pump is kept in the shed at Alder Wharf [S1]. " * 12
    async with (
        ModelServer(always(Reply(words, stall_after=100))) as model,
        with_model(model, database_url, tmp_path) as own,
        open_page(browser, own.url) as watched,
    ):
        page = watched.page
        await loaded(page)
        await page.get_by_label("Route").select_option("standard")
        await ask(page, WHERE)
        await page.wait_for_function("() => document.getElementById('answer').textContent.includes('bilge pump')")
        assert await page.locator("#ask-status").inner_text() == "Working …"
        assert await page.locator("#answer").get_attribute("aria-busy") == "true"
        await page.keyboard.press("Escape")
        await page.get_by_text("Stopped. The run was ended.").wait_for()
        await until_gone(model.requests[-1])
        assert "bilge pump" in await page.locator("#answer").inner_text()  # what came stays


async def test_stop_ends_the_run_down_to_the_models_call(browser: Browser, database_url: str, tmp_path: Path) -> None:
    slow = Reply("The spare bilge pump is kept in the shed [S1].", stall_after=3)
    async with (
        ModelServer(always(slow)) as model,
        with_model(model, database_url, tmp_path) as own,
        open_page(browser, own.url) as watched,
    ):
        page = watched.page
        await loaded(page)
        await page.get_by_label("Route").select_option("standard")
        await ask(page, WHERE)
        await until(lambda: model.requests, 10.0)
        stop = page.get_by_role("button", name="Stop")
        assert (await focused(page) or {})["id"] == "stop-button"
        await stop.click()
        await page.get_by_text("Stopped. The run was ended.").wait_for()
        await until_gone(model.requests[-1])
        assert (await focused(page) or {})["id"] == "ask-button"
        assert watched.wrong == []


async def test_where_runs_outlive_their_readers_the_button_says_so(
    browser: Browser, database_url: str, tmp_path: Path
) -> None:
    slow = Reply("The spare bilge pump is kept in the shed [S1].", first_token_delay=1.0)
    async with (
        ModelServer(always(slow)) as model,
        with_model(model, database_url, tmp_path, journal={"detach": True}) as own,
        open_page(browser, own.url) as watched,
    ):
        page = watched.page
        await loaded(page)
        await page.get_by_label("Route").select_option("standard")
        await ask(page, WHERE)
        await until(lambda: model.requests, 10.0)
        await page.get_by_role("button", name="Leave").click()
        await page.get_by_text("Left. The run goes on").wait_for()
        await page.locator("#runs-list").get_by_text("running").wait_for()
        async with asyncio.timeout(10.0):
            while (await own.client.get("/console/api/runs")).json()["runs"][0]["state"] != "done":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await page.get_by_role("button", name="Newest").click()
        await page.locator("#runs-list").get_by_text("answered").first.wait_for()


async def test_a_key_that_is_revoked_while_the_page_is_open_is_named(
    browser: Browser, database_url: str, tmp_path: Path
) -> None:
    async with serving(settings_for(database_url, tmp_path, auth={"mode": "keys"})) as own:
        key, kept = await create_key(own.application.pool, "default", role="user")
        async with open_page(browser, own.url) as watched:
            page = watched.page
            await page.get_by_label("API key", exact=True).fill(key)
            await page.keyboard.press("Enter")
            await loaded(page)
            await revoke_key(own.application.pool, kept.key_id)
            await asyncio.sleep(FRESH_SECONDS)
            await ask(page, WHERE)
            await page.locator("#problem").get_by_text("is revoked. Give a valid API key below.").wait_for()
            assert (await focused(page) or {})["id"] == "key"


HOSTILE = '<img src=x onerror="window.broken=1"><script>window.broken=2</script>'


async def test_hostile_answers_titles_and_questions_are_shown_as_what_they_are(
    browser: Browser, database_url: str, tmp_path: Path
) -> None:
    text = f"The spare bilge pump {HOSTILE} is kept in the shed 🛟 at Alder Wharf [S1]. See javascript:alert(1) too."
    async with (
        ModelServer(always(Reply(text))) as model,
        with_model(model, database_url, tmp_path) as own,
    ):
        pump = "The spare bilge pump is kept in the shed at Alder Wharf. The dockmaster signs for the spare bilge pump."
        hostile = SourceDocument("evil", f"Spare pump {HOSTILE}", pump, uri="javascript:window.broken=3")
        await own.application.ingest("default", "evil", stream([hostile]), prune=False)
        async with open_page(browser, own.url) as watched:
            page = watched.page
            await loaded(page)
            await page.get_by_label("Collection").fill("evil")
            await page.get_by_label("Route").select_option("standard")
            await ask(page, f"Where is the spare bilge pump kept {HOSTILE}?")
            await ended(page)
            assert "spare bilge pump" in await page.locator("#answer").inner_text()
            assert "<script>" in await page.locator("#runs-list .asked").first.inner_text()
            await page.get_by_role("button", name=re.compile("Trace of")).first.click()
            await page.locator("#runs-list .trace").wait_for()
            shown = await page.locator("body").inner_text()
            assert f"Spare pump {HOSTILE}" in shown
            assert await page.evaluate("() => window.broken ?? 0") == 0
            assert await page.locator("main img, main script, main iframe").count() == 0
            links = await page.locator("main a").evaluate_all("(all) => all.map((each) => each.href)")
            assert [each for each in links if not each.startswith(("http://", "https://"))] == []
            assert watched.wrong == []


async def test_the_policy_stops_what_would_get_past_the_page(browser: Browser, served: Served) -> None:
    async with open_page(browser, served.url) as watched:
        page = watched.page
        await loaded(page)
        tried = await page.evaluate(
            """async () => {
              const attempt = async (act) => {
                try { await act(); return "done"; } catch (error) { return error.name; }
              };
              const script = document.createElement("script");
              return [
                await attempt(() => { document.body.innerHTML = "<b>x</b>"; }),
                await attempt(() => { script.textContent = "window.broken = 1"; document.body.append(script); }),
                await attempt(() => fetch("http://127.0.0.1:9/")),
                window.broken ?? 0,
              ];
            }"""
        )
        assert tried == ["TypeError", "TypeError", "TypeError", 0]
        assert any("Content Security Policy" in each for each in watched.wrong)


async def test_marks_stand_where_the_citation_says_also_behind_characters_of_two_units(
    browser: Browser, served: Served
) -> None:
    async with open_page(browser, served.url) as watched:
        shown = await watched.page.evaluate(
            """async () => {
              const { showAnswer } = await import("/console/answer.js");
              const [box, list] = [document.createElement("div"), document.createElement("ol")];
              showAnswer(box, list, "🛟🛟 kept. Tail", [
                { answer_start: 3, answer_end: 8, title: "A", quote: "q", passage_id: "a#0" },
                { answer_start: 3, answer_end: 8, title: "B", quote: "r", passage_id: "b#0" },
                { answer_start: 90, answer_end: 99, title: "C", quote: "", passage_id: "c#0" },
              ], "x");
              return [box.textContent, box.querySelector("mark").textContent, list.children.length];
            }"""
        )
        assert shown == ["🛟🛟 kept.[1][2] Tail", "kept.", 3]


async def test_with_keys_it_asks_for_one_and_keeps_it_in_the_tab_alone(
    browser: Browser, database_url: str, tmp_path: Path
) -> None:
    async with serving(settings_for(database_url, tmp_path, auth={"mode": "keys"})) as own:
        pool = own.application.pool
        user, _ = await create_key(pool, "default", role="user")
        admin, _ = await create_key(pool, "default", role="admin")
        async with open_page(browser, own.url) as watched:
            page = watched.page
            field = page.get_by_label("API key", exact=True)
            await field.wait_for()
            assert (await focused(page) or {})["id"] == "key"
            assert await page.locator("main > section:visible").count() == 0
            await picture(page, "key")
            await field.fill("pm_wrong")
            await page.get_by_role("button", name="Use the key").click()
            await page.get_by_text("Give a valid API key below.").wait_for()
            await field.fill(user)
            await page.keyboard.press("Enter")
            await loaded(page)
            assert "reading only" in await page.locator("#whom").inner_text()
            assert not await page.get_by_role("button", name="Save this threshold").is_visible()
            await ask(page, WHERE)
            assert "route:" in await ended(page)
            await page.locator("#runs-list .asked").first.wait_for()
            assert await page.get_by_role("button", name=re.compile("Trace of")).count() == 0
            kept = await page.evaluate(
                "() => [Object.values(sessionStorage), Object.values(localStorage), document.cookie]"
            )
            assert kept == [[user], [], ""]
            await page.get_by_role("button", name="Forget the key").click()
            await field.wait_for()
            assert await page.evaluate("() => sessionStorage.length") == 0
            await field.fill(admin)
            await page.keyboard.press("Enter")
            await loaded(page)
            assert await page.get_by_role("button", name="Save this threshold").is_visible()
            await page.get_by_role("button", name=re.compile("Trace of")).first.wait_for()
            assert watched.unexpected("401") == []


async def test_runs_are_paged_and_the_focus_goes_with_the_page(
    browser: Browser, database_url: str, tmp_path: Path
) -> None:
    async with serving(settings_for(database_url, tmp_path)) as own:
        for number in range(23):
            body = {"question": f"{WHERE} {number}", "route": "standard"}
            assert (await own.post("/query", body)).status_code == 200
        async with open_page(browser, own.url) as watched:
            page = watched.page
            await page.locator("#runs-list > li").nth(19).wait_for()
            await page.get_by_role("button", name="Older").click()
            await page.get_by_text(f"{WHERE} 0", exact=True).wait_for()
            assert await page.locator("#runs-list > li").count() == 3
            assert (await focused(page) or {})["id"] == "runs-title"
            assert not await page.get_by_role("button", name="Older").is_visible()


async def test_motion_is_left_away_for_those_who_want_none(browser: Browser, served: Served) -> None:
    async with (
        open_page(browser, served.url, motion="reduce") as still,
        open_page(browser, served.url, motion="no-preference") as moving,
    ):
        moves = """() => { document.getElementById("live").hidden = false;
          document.getElementById("answer").setAttribute("aria-busy", "true");
          return [getComputedStyle(document.getElementById("answer")).animationName,
                  getComputedStyle(document.documentElement).scrollBehavior]; }"""
        assert await still.page.evaluate(moves) == ["none", "auto"]
        assert await moving.page.evaluate(moves) == ["wait", "smooth"]


async def test_a_gateway_that_went_away_is_named_with_the_way_out(
    browser: Browser, database_url: str, tmp_path: Path
) -> None:
    async with serving(settings_for(database_url, tmp_path)) as own, open_page(browser, own.url) as watched:
        page = watched.page
        await loaded(page)
        await page.context.set_offline(True)
        await ask(page, WHERE)
        await page.locator("#notices .error").wait_for()
        assert "See whether `pointsman serve` still runs" in await page.locator("#notices").inner_text()
        await page.get_by_role("button", name="Look again").click()
        await page.get_by_text("The gateway can't be reached.").nth(1).wait_for()
