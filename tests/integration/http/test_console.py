"""The console's page and its JSON: what it may load, who may read what, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.http.app import served_paths
from router.http.console import MAX_COUNTED, TRACE_ENTRIES
from router.http.console_page import POLICY, assets, page_paths
from router.journal.listing import MAX_PAGE
from router.settings import BadSettings
from standard.database.pool import connection
from standard.domain.event import Event, TokenEmitted
from standard.domain.passage import Scope
from standard.domain.question import Question
from standard.domain.text import UntrustedText
from tests.integration.http.conftest import WHERE, serving, settings_for

if TYPE_CHECKING:
    from pathlib import Path

    import httpx2

    from tests.integration.http.conftest import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAVE = {"content-type": "application/json", "x-pointsman-console": "1"}


async def read(served: Served, path: str, **headers: str) -> Any:  # noqa: ANN401 - JSON values
    response = await served.client.get(path, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


async def save(served: Served, threshold: object, version: object, **headers: str) -> httpx2.Response:
    body = json.dumps({"threshold": threshold, "expected_version": version})
    return await served.client.put("/console/api/threshold", content=body, headers=SAVE | headers)


class Markup(HTMLParser):
    """What a page loads, and what of it a strict policy would refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.inline: list[str] = []
        self.ids: list[str] = []
        self.points_at: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        for name, value in attrs:
            if name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}")
            if name in {"src", "action"} or (name == "href" and tag == "link"):
                self.loads.append(value or "")
            if name in {"for", "aria-labelledby", "aria-describedby", "aria-controls", "list"}:
                self.points_at += (value or "").split()
            if name == "href" and (value or "").startswith("#"):
                self.points_at.append((value or "")[1:])
        if given.get("id"):
            self.ids.append(given["id"] or "")
        if tag == "style" or (tag == "script" and "src" not in given):
            self.inline.append(tag)


async def test_the_page_loads_its_own_files_and_nothing_else(served: Served) -> None:
    page = await served.client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    markup = Markup()
    markup.feed(page.text)
    assert markup.inline == []
    assert markup.loads
    for path in markup.loads:
        assert path.startswith("/console/")
        assert (await served.client.get(path)).status_code == 200
    assert len(markup.ids) == len(set(markup.ids))
    assert set(markup.points_at) <= set(markup.ids)


async def test_every_file_comes_with_a_policy_that_allows_no_inline_script_and_no_other_host(served: Served) -> None:
    files = assets()
    assert sum(len(each.content) for each in files) < 80_000
    for asset in files:
        path = "/" if asset.name == "index.html" else f"/console/{asset.name}"
        response = await served.client.get(path)
        assert response.content == asset.content
        assert response.headers["content-security-policy"] == POLICY
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["x-frame-options"] == "DENY"
        again = await served.client.get(path, headers={"if-none-match": response.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    directives = dict(part.strip().split(" ", 1) for part in POLICY.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == directives["connect-src"] == directives["style-src"] == "'self'"
    assert "unsafe" not in POLICY


async def test_no_script_of_the_page_makes_markup_or_code_of_text() -> None:
    scripts = {each.name: each.content.decode() for each in assets() if each.name.endswith(".js")}
    assert len(scripts) > 4
    for name, script in scripts.items():
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|localStorage", script
        )
        assert found == [], name
        # Every module that is named is one that is shipped.
        assert {each.removeprefix("./") for each in re.findall(r'from "([^"]+)"', script)} <= set(scripts)


async def test_it_tells_who_asks_and_what_is_in_force(served: Served) -> None:
    about = await read(served, "/console/api/about")
    assert (about["tenant"], about["admin"], about["keeps"]) == ("default", True, "text")
    assert about["policy"]["threshold"] == served.application.policies.policy("default").threshold


async def test_what_the_console_says_is_never_kept_by_a_browser(served: Served) -> None:
    response = await served.client.get("/console/api/about")
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["content-security-policy"].startswith("default-src 'none'")


async def test_runs_are_listed_newest_first_and_paged_to_the_end(served: Served) -> None:
    for number in range(5):
        body = {"question": f"{WHERE} Number {number}?", "request_id": f"paged/{number}", "route": "standard"}
        assert (await served.post("/query", body)).status_code == 200
    found, token = [], ""
    while True:
        page = await read(served, f"/console/api/runs?limit=2&page_token={token}")
        assert len(page["runs"]) <= 2
        found += page["runs"]
        token = page["next_page_token"]
        if not token:
            break
    ids = [run["request_id"] for run in found]
    assert len(ids) == len(set(ids))
    assert ids[:5] == [f"paged/{number}" for number in reversed(range(5))]
    newest = found[0]
    assert newest["question"] == f"{WHERE} Number 4?"
    assert (newest["chosen"], newest["reason"], newest["state"]) == ("standard", "forced", "done")
    assert newest["outcome"] in {"answered", "answered_with_caveat"}
    assert newest["seconds"] > 0.0


async def test_a_trace_tells_every_event_in_order_and_goes_on_behind_one(served: Served) -> None:
    assert (await served.post("/query", {"question": WHERE, "request_id": "traced/1"})).status_code == 200
    trace = await read(served, "/console/api/runs/traced%2F1")
    kinds = [entry["kind"] for entry in trace["entries"]]
    assert trace["question"] == WHERE
    assert "decision" in kinds
    assert kinds[-1] == "completed"
    assert [entry["sequence"] for entry in trace["entries"]] == list(range(1, len(kinds) + 1))
    assert trace["entries"][-1]["body"]["answer"]["text"]
    assert trace["next_after"] is None
    later = await read(served, "/console/api/runs/traced%2F1?after=1")
    assert [entry["sequence"] for entry in later["entries"]] == list(range(2, len(kinds) + 1))
    missing = await served.client.get("/console/api/runs/nobody")
    assert (missing.status_code, missing.json()["error"]["reason"]) == (404, "NOT_FOUND")


async def test_the_histogram_counts_what_the_journal_has(module_database_url: str, served: Served) -> None:
    before = await read(served, "/console/api/routing")
    for number in range(3):
        body = {"question": f"Who signs for the spare pump, and who is their deputy? {number}"}
        assert (await served.post("/query", body)).status_code == 200
    assert (await served.post("/query", {"question": WHERE, "dry_run": True})).status_code == 200
    assert (await served.post("/query", {"question": "Who lights the lantern?", "route": "agentic"})).status_code == 200
    after = await read(served, "/console/api/routing")
    assert after["counted"] == sum(after["bins"]) == before["counted"] + 3
    assert after["forced"] == before["forced"] + 1
    assert sum(after["verdicts"].values()) == sum(before["verdicts"].values()) + 4
    async with connection(served.application.pool) as conn:
        cursor = await conn.execute(
            "select count(*) from run_events where kind = 'decision'"
            " and (body #>> '{body,decision,complex_probability}')::numeric >= 0.3"
            " and body #>> '{body,decision,reason}' <> 'forced'"
            " and run_id in (select run_id from run_events where kind = 'completed'"
            " and body #>> '{body,answer,outcome}' is not null)"
        )
        row = await cursor.fetchone()
    assert row is not None
    assert sum(after["bins"][30:]) == row[0]
    assert (await read(served, "/console/api/routing?limit=2"))["runs"] == 2


async def test_collections_and_dependencies_are_told(served: Served) -> None:
    corpus = await read(served, "/console/api/collections")
    assert [(each["name"], each["documents"]) for each in corpus["collections"]] == [("default", 4)]
    assert corpus["collections"][0]["passages"] >= 4
    state = await read(served, "/console/api/dependencies")
    assert state["serving"] is True
    assert state["dependencies"]["database"] is True


async def test_a_threshold_is_saved_once_and_the_second_who_saves_is_told_of_the_first(
    database_url: str, tmp_path: Path
) -> None:
    async with serving(settings_for(database_url, tmp_path)) as own:
        first = await save(own, 0.25, 0)
        assert first.status_code == 200
        assert first.json()["policy"]["threshold"] == 0.25
        assert first.json()["policy"]["version"] == 1
        for seen in (0, 7):  # one who saw the settings' policy, one who saw another version
            late = await save(own, 0.75, seen)
            assert late.status_code == 409
            error = late.json()["error"]
            assert error["reason"] == "POLICY_CHANGED"
            assert "version 1 with threshold 0.25" in error["message"]
            assert f"you saw version {seen}" in error["message"]
        assert own.application.policies.policy("default").threshold == 0.25
        assert (await save(own, 1, 1)).json()["policy"]["version"] == 2
        answer = (await own.post("/query", {"question": WHERE})).json()
        assert answer["decision"]["threshold"] == 1.0


async def test_two_who_save_at_once_do_not_both_succeed(database_url: str, tmp_path: Path) -> None:
    async with serving(settings_for(database_url, tmp_path)) as own:
        said = await asyncio.gather(*(save(own, number / 10, 0) for number in range(1, 9)))
        assert sorted(each.status_code for each in said) == [200] + [409] * 7


@pytest.mark.parametrize(
    ("threshold", "version", "field"),
    [(1.5, 0, "threshold"), (-0.1, 0, "threshold"), ("0.5", 0, "threshold"), (None, 0, "threshold"),
     (0.5, None, "expected_version"), (0.5, -1, "expected_version"), (0.5, 1.5, "expected_version")],
)  # fmt: skip
async def test_a_bad_threshold_is_refused_by_name(
    served: Served, threshold: object, version: object, field: str
) -> None:
    refused = await save(served, threshold, version)
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, field)


async def test_a_write_that_a_form_of_another_page_could_send_is_refused(served: Served) -> None:
    body = b'{"threshold": 0.1, "expected_version": 0}'
    ways: list[tuple[dict[str, str], int]] = [
        ({"content-type": "application/json"}, 403),
        ({"content-type": "text/plain", "x-pointsman-console": "1"}, 415),
        ({"x-pointsman-console": "1"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        (SAVE | {"origin": "https://elsewhere.example"}, 403),
        (SAVE | {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}, 403),
        (SAVE | {"host": "rebound.example"}, 403),
    ]
    for headers, status in ways:
        refused = await served.client.put("/console/api/threshold", content=body, headers=headers)
        assert refused.status_code == status, headers
    assert (await served.client.post("/console/api/threshold", content=body, headers=SAVE)).status_code == 405
    assert (await read(served, "/console/api/about"))["policy"]["version"] == 0


async def test_a_name_that_points_to_loopback_reads_nothing(served: Served) -> None:
    paths = ["/", "/console/main.js", "/console/api/about", "/console/api/runs", "/console/api/routing",
             "/console/api/collections", "/console/api/dependencies", "/console/api/runs/x"]  # fmt: skip
    for path in paths:
        for host in ("rebound.example", "rebound.example:8080", "127.0.0.1.rebound.example", "localhost.example", "["):
            refused = await served.client.get(path, headers={"host": host})
            assert refused.status_code == 403, (path, host)
            assert "http.origins" in refused.json()["error"]["message"]
    for host in ("localhost:8080", "127.0.0.1", "127.8.8.8:1", "[::1]:8080", "gateway.localhost", "LOCALHOST"):
        assert (await served.client.get("/console/api/about", headers={"host": host})).status_code == 200


async def test_a_name_that_is_allowed_as_an_origin_is_let_through(database_url: str, tmp_path: Path) -> None:
    origins = {"origins": ["https://points.example"]}
    async with serving(settings_for(database_url, tmp_path, http=origins)) as own:
        assert (await own.client.get("/", headers={"host": "points.example"})).status_code == 200
        assert (await own.client.get("/", headers={"host": "other.example"})).status_code == 403


async def test_the_console_can_be_switched_off(database_url: str, tmp_path: Path) -> None:
    async with serving(settings_for(database_url, tmp_path, http={"console": False})) as own:
        for path in ("/", "/console/main.js", "/console/api/about"):
            assert (await own.client.get(path)).status_code == 404


async def test_without_consent_to_keep_it_no_question_is_shown(database_url: str, tmp_path: Path) -> None:
    async with serving(settings_for(database_url, tmp_path, journal={"questions": "hash"})) as own:
        assert (await own.post("/query", {"question": WHERE, "request_id": "hashed"})).status_code == 200
        page = await read(own, "/console/api/runs")
        assert [run["question"] for run in page["runs"]] == [None]
        assert page["runs"][0]["collection"] == "default"
        trace = await own.client.get("/console/api/runs/hashed")
        assert "bilge" not in trace.text
        assert (await read(own, "/console/api/routing"))["counted"] == 1


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.one_of(
        ANY_JSON,
        st.fixed_dictionaries({"threshold": ANY_JSON, "expected_version": ANY_JSON.filter(lambda each: each != 0)}),
        st.fixed_dictionaries({"threshold": st.floats(0.0, 1.0), "expected_version": st.integers(1, 2**40)}),
    )
)
async def test_no_body_that_was_not_meant_changes_the_policy(served: Served, body: object) -> None:
    refused = await served.client.put("/console/api/threshold", content=json.dumps(body), headers=SAVE)
    assert refused.status_code in {400, 409}, refused.text
    assert served.application.policies.stored("default").version == 0


HOSTILE = '<img src=x onerror="alert(1)">\u2028</script><script>alert(2)</script>'


async def test_hostile_questions_come_as_json_that_is_never_taken_for_a_page(served: Served) -> None:
    assert (await served.post("/query", {"question": HOSTILE, "request_id": "hostile"})).status_code == 200
    for path in ("/console/api/runs?limit=1", "/console/api/runs/hostile"):
        response = await served.client.get(path)
        assert response.headers["content-type"] == "application/json"
        assert response.headers["x-content-type-options"] == "nosniff"
    assert (await read(served, "/console/api/runs?limit=1"))["runs"][0]["question"] == HOSTILE


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/console/api/runs?limit=0", "limit"),
        (f"/console/api/runs?limit={MAX_PAGE + 1}", "limit"),
        ("/console/api/runs?limit=1&limit=2", "limit"),
        ("/console/api/runs?limit=\u0661", "limit"),
        ("/console/api/runs?page_token=nonsense", "page_token"),
        ("/console/api/runs?tenant=other", "tenant"),
        (f"/console/api/routing?limit={MAX_COUNTED + 1}", "limit"),
        ("/console/api/routing?limit=-1", "limit"),
        ("/console/api/runs/x?after=-1", "after"),
        ("/console/api/runs/%20", "request_id"),
        ("/console/api/collections?page_token=%ff", "page_token"),
        ("/console/api/about?x=1", "x"),
    ],
)
async def test_a_parameter_out_of_bounds_is_refused_by_name(served: Served, path: str, field: str) -> None:
    refused = await served.client.get(path)
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, field)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["runs", "routing", "collections", "dependencies", "about", "runs/some"]),
    given=st.dictionaries(
        st.one_of(st.sampled_from(["limit", "page_token", "after"]), st.text(max_size=8)),
        st.one_of(st.text(max_size=24), st.integers().map(str), st.floats().map(str)),
        max_size=3,
    ),
)
async def test_any_parameters_are_answered_or_refused_and_never_break_it(
    served: Served, path: str, given: dict[str, str]
) -> None:
    response = await served.client.get(f"/console/api/{path}", params=given)
    assert response.status_code in {200, 400, 404}
    body = response.json()
    if response.status_code == 200 and path == "runs":
        assert len(body["runs"]) <= MAX_PAGE
    if response.status_code == 200 and path == "routing":
        assert body["runs"] <= MAX_COUNTED


async def test_reads_that_pile_up_are_refused_and_those_whose_reader_left_make_room(
    database_url: str, tmp_path: Path
) -> None:
    async with serving(settings_for(database_url, tmp_path)) as own:
        async with connection(own.application.pool) as conn, conn.transaction():
            await conn.execute("lock table run in access exclusive mode")
            stuck = [asyncio.create_task(own.client.get("/console/api/runs")) for _ in range(40)]
            done, waiting = await asyncio.wait(stuck, timeout=2.0)
            refused = [each.result() for each in done]
            assert [each.status_code for each in refused] == [429] * 8
            assert "retry-after" in refused[0].headers
            # Two connections are the most that the console takes; questions and the rest have theirs.
            assert (await own.client.get("/console/api/dependencies")).status_code == 200
            assert (await own.client.get("/console/api/about")).status_code == 200
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            async with asyncio.timeout(5.0):  # the server hears of it a moment later
                while True:
                    late = asyncio.create_task(own.client.get("/console/api/runs"))
                    _, pending = await asyncio.wait([late], timeout=0.3)
                    if pending:  # it waits for the lock and was not refused
                        break
        assert (await late).status_code == 200


async def test_a_long_trace_comes_in_pieces(database_url: str, tmp_path: Path) -> None:
    async with serving(settings_for(database_url, tmp_path)) as own:
        journal = own.application.journal
        begun = await journal.begin("default", "long", "hash", None, "")
        events = [Event(number, TokenEmitted(f"{number} "), "") for number in range(1, TRACE_ENTRIES + 51)]
        await journal.append(begun, events, state="done")
        first = await read(own, "/console/api/runs/long")
        assert (len(first["entries"]), first["next_after"]) == (TRACE_ENTRIES, TRACE_ENTRIES)
        rest = await read(own, f"/console/api/runs/long?after={TRACE_ENTRIES}")
        assert (len(rest["entries"]), rest["next_after"]) == (50, None)


async def test_a_run_that_goes_on_is_listed_as_running(database_url: str, tmp_path: Path) -> None:
    async with serving(settings_for(database_url, tmp_path)) as own:
        await own.application.journal.begin("default", "begun", "hash", None, "")
        await own.application.journal.begin("other", "begun", "hash", None, "")
        listed = (await read(own, "/console/api/runs"))["runs"]
        assert [(each["request_id"], each["state"], each["chosen"], each["outcome"]) for each in listed] == [
            ("begun", "running", None, None)
        ]


async def test_golden_questions_are_told_from_what_people_asked(database_url: str, tmp_path: Path) -> None:
    async with serving(settings_for(database_url, tmp_path)) as own:
        asked = Question(UntrustedText(WHERE), Scope("default", "default"), request_id="golden", probe=True)
        await own.application.gateway.answer(asked)
        assert (await own.post("/query", {"question": WHERE})).status_code == 200
        listed = (await read(own, "/console/api/runs"))["runs"]
        assert [run["probe"] for run in listed] == [False, True]
        assert (await read(own, "/console/api/routing"))["runs"] == 1


async def test_tables_of_ones_own_are_listed_also_where_they_cannot_be_read(database_url: str, tmp_path: Path) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("create table notes (id text primary key, content text, embedding vector(384))")
        vector = "[1" + ",0" * 383 + "]"
        conn.execute("insert into notes values ('a', 'A note.', %s), ('b', 'Another.', %s)", [vector, vector])
        conn.execute("analyze notes")
    keys = {"table": "notes", "content": "content"}
    tables = {"notes": keys, "missing": keys | {"table": "nowhere"}}
    async with serving(settings_for(database_url, tmp_path, tables=tables)) as own:
        listed = (await read(own, "/console/api/collections"))["collections"]
        assert [(each["name"], each["table"], each["documents"], each["passages"]) for each in listed] == [
            ("default", False, 4, 4),
            ("missing", True, None, None),
            ("notes", True, None, 2),
        ]


async def test_a_contract_that_wants_the_consoles_paths_stops_the_start(tmp_path: Path) -> None:
    contract = tmp_path / "own.toml"
    contract.write_text(
        'name = "own"\n[[route]]\npath = "/"\nmethod = "GET"\n[route.request]\nquestion = "@query.q"\n'
        "[route.response]\ntext = '{answer}'\n"
    )
    assert served_paths([str(contract)])
    with pytest.raises(BadSettings, match="GET / is served by the gateway itself"):
        served_paths([str(contract)], page_paths())
