"""Contracts: files checked before anything is served, and other people's requests answered in their own words."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
import pytest_asyncio
from pydantic import BaseModel

from router.http.app import served_paths
from router.http.contract.load import load_contract, load_contracts
from router.http.contract.schema import ContractFile
from router.settings import BadSettings
from tests.integration.http.conftest import WHERE, serving, settings_for
from tests.support.model_server import ModelServer, Reply, always

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.http.conftest import Served

GOOD = """
name = "own"
[[route]]
path = "/own"
[route.request]
question = "q"
[route.response]
body = '{"a": "{answer}"}'
"""

EVERYTHING = """
name = "own"

[[route]]
method = "GET"
path = "/ask/{library}"
[route.request]
question = "@query.q"
collection = "@path.library"
top_k = "@query.k"
session = "@header.x-reader"
[route.response]
text = "{answer}"
content_type = "text/markdown"
headers = { x-run = "{request_id}", x-echo = "{request:@header.x-reader}" }

[[route]]
path = "/chat"
[route.request]
question = "messages[role=user][-1].content"
history = { path = "messages", drop_last = true }
filter = "where"
route = "route"
[route.fixed]
top_k = 2
[route.response]
status = 201
body = '''
{"reply": {"text": "{answer}", "length": "{usage.output_tokens}", "who": "reader {request:user.name|session_id}"},
 "again": "{request:messages}", "braces": "{{}}", "nothing": null,
 "cited": {"$each": "citations", "$item": {"n": "{citation.number}", "say": "[{citation.number}] {citation.title}"}}}
'''
[route.stream]
when = { path = "mode", equals = "live" }
framing = "raw"
[[route.stream.frame]]
on = "token"
text = "{token}"
[[route.stream.frame]]
on = "end"
text = "\\n-- {route}, {outcome}"

[[route]]
path = "/pairs"
[route.request]
question = "inputs.text"
history = { path = "inputs.past", pairs = true }
[route.stream]
newline = "crlf"
heartbeat = "still here"
[[route.stream.frame]]
on = "step"
event = "progress"
data = '{"line": "{step}"}'
[[route.stream.frame]]
on = "token"
text = "{token}"
[[route.stream.frame]]
on = "end"
event = "bye"

[[error]]
when = [400]
status = 200
body = '{"ok": false, "why": "{error.message}", "where": "{error.field}", "status": "{error.status}"}'
headers = { x-error = "{error.reason}" }

[[error]]
body = '{"ok": false}'
"""

pytestmark = pytest.mark.asyncio(loop_scope="module")


def written(folder: Path, text: str, name: str = "own.toml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def own(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("own")
    contracts = (written(folder, EVERYTHING),)
    async with serving(settings_for(module_database_url, folder, http={"contracts": contracts})) as opened:
        yield opened


async def test_a_get_with_path_query_and_header(own: Served) -> None:
    params = {"q": WHERE, "k": "1"}
    response = await own.client.get("/ask/default", params=params, headers={"x-reader": "r-7"})
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/markdown"
    assert "shed at Alder Wharf" in response.text
    assert response.headers["x-run"] == response.headers["x-pointsman-run"]
    assert response.headers["x-echo"] == "r-7"


async def test_a_chat_with_templates_of_every_kind(own: Served) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "When is the lantern lit?"},
        {"role": "assistant", "content": "At dusk."},
        {"role": "user", "content": WHERE},
    ]
    body = {"messages": messages, "user": {"name": "Ada"}, "where": {"kind": "note"}, "route": "standard"}
    response = await own.post("/chat", body)
    assert response.status_code == 201
    told = response.json()
    assert "shed at Alder Wharf" in told["reply"]["text"]
    assert told["reply"]["length"] == 0
    assert told["reply"]["who"] == "reader Ada"
    assert told["again"] == messages
    assert told["braces"] == "{}"
    assert told["nothing"] is None
    assert told["cited"][0] == {"n": 1, "say": "[1] Spare pump"}
    live = await own.post("/chat", body | {"mode": "live"})
    assert live.headers["content-type"].startswith("text/plain")
    assert live.text == told["reply"]["text"] + "\n-- standard, " + live.text.rsplit(", ", 1)[1]


async def test_pairs_and_a_stream_of_text(own: Served) -> None:
    past = [["Where is the spare bilge pump?", "In the shed."]]
    response = await own.post("/pairs", {"inputs": {"text": "Who signs for it?", "past": past}})
    frames = response.text.split("\r\n\r\n")
    assert frames[0].startswith('event: progress\r\ndata: {"line":')
    assert frames[-2] == "event: bye"
    assert any(frame.startswith("data: ") for frame in frames)
    assert "\n" not in response.text.replace("\r\n", "")


async def test_errors_have_the_shape_status_and_words_of_the_contract(own: Served) -> None:
    wrong = await own.post("/pairs", {"inputs": {"text": ""}})
    assert wrong.status_code == 200
    assert wrong.json() == {"ok": False, "why": "inputs.text: is empty", "where": "inputs.text", "status": 200}
    assert wrong.headers["x-error"] == "INVALID_INPUT"
    broken = await own.client.post("/pairs", content=b"{", headers={"content-type": "application/json"})
    assert broken.json()["where"] == "body"
    elsewhere = await own.client.get("/ask/nothing-here", params={"q": WHERE})
    assert (elsewhere.status_code, elsewhere.json()) == (404, {"ok": False})
    bodies: list[dict[str, Any]] = [
        {"inputs": []},
        {"inputs": {"text": 7}},
        {"inputs": {"text": "x", "past": [["a"]]}},
        {"inputs": {"text": "x", "past": "a"}},
    ]
    for body in bodies:
        assert (await own.post("/pairs", body)).json()["ok"] is False
    assert (await own.post("/chat", {"messages": [{"role": "user", "content": "x"}], "route": "sideways"})).json()[
        "where"
    ] == "route"
    injected = await own.client.get("/ask/default", params={"q": "\r\nx-evil: 1 where is the pump"})
    assert "x-evil" not in injected.headers


@pytest.mark.parametrize("given", [5, True, {"text": "Where?"}, 1.5])
async def test_a_question_of_another_type_is_told_so(own: Served, given: object) -> None:
    reply = await own.post("/pairs", {"inputs": {"text": given}})
    assert (reply.json()["ok"], reply.json()["where"]) == (False, "inputs.text")
    assert "must be text, not a" in reply.json()["why"]


async def test_ids_of_legacy_clients_may_be_any_text(own: Served) -> None:
    headers = {"x-reader": "Ada Lovelace, reader"}
    response = await own.client.get("/ask/default", params={"q": WHERE}, headers=headers)
    assert response.status_code == 200


BATCH = """
name = "many"
[[route]]
path = "/many"
[route.batch]
path = "asks"
name = "ask"
split = ["opts"]
[route.request]
question = ["ask.q", "ask"]
session = "opts.session"
[route.response]
body = '''
{"n": {"$each": "answers", "$item": {"$with": "{request:ask}", "a": "{answer}", "s": "{session_id}",
  "hits": {"$each": "passages", "$item": "{passage.id}"}, "run": "{request_id}"}}, "id": "{request_id}"}
'''
[[error]]
body = '{"why": "{error.message}", "where": "{error.field}"}'
"""
WHO = "Who is the dockmaster of Alder Wharf?"


async def test_a_batch_answers_each_of_its_inputs_in_their_order(module_database_url: str, tmp_path: Path) -> None:
    contracts = (written(tmp_path, BATCH),)
    async with serving(settings_for(module_database_url, tmp_path / "data", http={"contracts": contracts})) as served:
        asks = [{"q": WHERE, "note": 7}, WHO, {"q": WHERE, "a": "not this"}]
        body = {"asks": asks, "opts": [{"session": "s1"}, {}, {"session": "s3"}]}
        reply = await served.post("/many", body, idempotency_key="twice")
        first, second, third = (items := reply.json()["n"])
        assert (first["q"], first["note"], first["s"]) == (WHERE, 7, "s1")
        assert "shed at Alder Wharf" in first["a"]
        assert first["hits"][0] == "pump#0"
        assert "Edda Quill" in second["a"]
        assert set(second) == {"a", "s", "hits", "run"}
        assert third["a"] == first["a"]
        assert third["s"] == "s3"
        assert len({item["run"] for item in items}) == 3
        assert reply.json()["id"] == reply.headers["x-pointsman-run"] == first["run"]
        again = await served.post("/many", body, idempotency_key="twice")
        assert [item["run"] for item in again.json()["n"]] == [item["run"] for item in items]
        assert (await served.post("/many", {"asks": []})).json()["n"] == []


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "asks"),
        ({"asks": "one"}, "asks"),
        ({"asks": [{"q": "x"}] * 101}, "asks"),
        ({"asks": ["x", "y"], "opts": [{}]}, "opts"),
        ({"asks": ["x", 7]}, "asks[1]"),
        ({"asks": [None]}, "asks[0].q"),
        ({"asks": ["x", "  "]}, "asks[1].q"),
    ],
)
async def test_a_batch_with_one_wrong_input_is_refused_whole_and_asks_nothing(
    module_database_url: str, tmp_path: Path, body: dict[str, Any], where: str
) -> None:
    contracts = (written(tmp_path, BATCH),)
    async with serving(settings_for(module_database_url, tmp_path / "data", http={"contracts": contracts})) as served:
        reply = await served.post("/many", body)
        assert reply.status_code == 400
        assert reply.json()["where"] == where


async def well_within_a_minute() -> None:
    """Wait where a minute is about to end: what was counted in it begins to go then."""
    left = 60.0 - time.time() % 60.0
    if left < 8.0:
        await asyncio.sleep(left)


async def test_each_input_of_a_batch_counts_as_a_request_and_failing_ones_end_the_others(
    module_database_url: str, tmp_path: Path
) -> None:
    contracts = (written(tmp_path, BATCH),)
    limits = {"requests_per_minute": 5}
    async with serving(
        settings_for(module_database_url, tmp_path / "data", http={"contracts": contracts}, limits=limits)
    ) as served:
        await well_within_a_minute()
        assert (await served.post("/many", {"asks": [WHERE] * 3})).status_code == 200
        refused = await served.post("/many", {"asks": [WHERE] * 3})
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        assert "less than 3 left of its 5 calls a minute" in refused.json()["why"]
        assert (await served.post("/many", {"asks": [WHERE] * 2})).status_code == 200  # nothing was used up
        assert (await served.post("/many", {"asks": []})).status_code == 429


async def test_a_batch_beyond_the_calls_of_a_minute_is_told_the_limit_and_uses_nothing_up(
    module_database_url: str, tmp_path: Path
) -> None:
    contracts = (written(tmp_path, BATCH), "langserve")
    limits = {"requests_per_minute": 3}
    async with serving(
        settings_for(module_database_url, tmp_path / "data", http={"contracts": contracts}, limits=limits)
    ) as served:
        await well_within_a_minute()
        for path, body, field in (
            ("/many", {"asks": [WHERE] * 4}, "asks"),
            ("/rag/batch", {"inputs": [WHERE] * 4}, "inputs"),
        ):
            refused = await served.post(path, body)
            assert refused.status_code in {400, 422}
            assert "retry-after" not in refused.headers
            assert "the tenant's limit is 3 a minute" in refused.text
            assert field in refused.text
        assert (await served.post("/many", {"asks": [WHERE] * 3})).status_code == 200  # all that a minute has


async def test_a_malformed_batch_counts_as_one_request(module_database_url: str, tmp_path: Path) -> None:
    contracts = (written(tmp_path, BATCH),)
    limits = {"requests_per_minute": 2}
    async with serving(
        settings_for(module_database_url, tmp_path / "data", http={"contracts": contracts}, limits=limits)
    ) as served:
        await well_within_a_minute()
        statuses = [(await served.post("/many", {"asks": asks})).status_code for asks in ("no list", [7], [7])]
    assert statuses == [400, 400, 429]


async def test_sources_and_their_text_are_given_where_a_contract_lists_them(
    module_database_url: str, tmp_path: Path
) -> None:
    async with (
        ModelServer(always(Reply("It is in the shed at Alder Wharf [S1]."))) as model,
        serving(
            settings_for(
                module_database_url,
                tmp_path,
                http={"contracts": ("plain", "dify")},
                llm={"base_url": model.base_url, "model": "m"},
            )
        ) as served,
    ):
        plain = (await served.post("/ask", {"query": WHERE, "top_k": 2})).json()
        assert plain["sources"][0]["id"] == "pump#0"
        assert len(plain["sources"]) == 2
        assert plain["sources"][0]["content"].startswith("The spare bilge pump")
        assert plain["sources"][0]["metadata"] == {"kind": "note"}
        assert 0.0 <= plain["sources"][1]["score"] <= plain["sources"][0]["score"] <= 1.0
        lines = (await served.post("/ask", {"question": WHERE, "stream": True})).text.splitlines()
        kinds = [json.loads(line)["type"] for line in lines]
        assert (kinds[0], kinds[-1]) == ("sources", "done")
        asked = {"query": WHERE, "response_mode": "blocking", "user": "u", "inputs": {}}
        dify = (await served.post("/v1/chat-messages", asked)).json()
        assert dify["metadata"]["usage"]["total_tokens"] > 0
        assert dify["metadata"]["retriever_resources"][0]["content"].startswith("The spare bilge pump")
        assert isinstance(dify["metadata"]["usage"]["total_price"], str)


WRONG: list[tuple[str, str, str]] = [
    ("name = ", "", "own.toml"),
    ('name = "own"', "nmae = 1", "nmae"),
    ('question = "q"', "", "route[0].request.question"),
    ('question = "q"', 'question = "a..b"', "route[0].request.question: path 'a..b' goes wrong at character 2"),
    ('question = "q"', 'question = "a["', "route[0].request.question"),
    ('question = "q"', 'question = "@cookie.x"', "@cookie is no source"),
    ('question = "q"', 'question = "@path.id"', "@path.id is no parameter of /own"),
    ('question = "q"', 'question = "q"\ntopk = "k"', "route[0].request.topk"),
    ("{answer}", "{anwser}", "route[0].response.body: {anwser} is not known here"),
    ("{answer}", "{token}", "route[0].response.body: {token} is not known here"),
    ("{answer}", "{answer", "route[0].response.body: a lone '{'"),
    ("{answer}", "{answer!int}", "!int is not known"),
    ('"{answer}"}', '"{answer}"', "route[0].response.body: is no JSON"),
    ('"{answer}"}', '{"$each": "hits", "$item": 1}}', '"$each" takes one of'),
    ("[route.response]", "[route.response]\nstatus = 99", "route[0].response.status"),
    ("[route.response]", '[route.response]\nheaders = { "content-length" = "1" }', "is no header that can be set here"),
    ("[route.response]", '[route.response]\nheaders = { "a b" = "1" }', "is no header that can be set here"),
    ('path = "/own"', 'path = "own"', "route[0].path"),
    ('path = "/own"', 'path = "/own/{"', "route[0].path: parameters are written"),
    ('path = "/own"', 'path = "/query"', "route[0].path: POST /query is served by the gateway itself"),
    ('path = "/own"', 'path = "/v1/vector_stores/{x}/search"', "is served by the gateway itself"),
    ('path = "/own"', 'path = "/own"\nmethod = "GET"', "a GET has no body"),
    ('[route.response]\nbody = \'{"a": "{answer}"}\'', "", "give response, stream or both"),
    ("[route.response]", '[route.batch]\npath = "in"\nname = "i.n"\n[route.response]', "route[0].batch.name"),
    ("[route.response]", '[route.batch]\npath = "i["\nname = "i"\n[route.response]', "route[0].batch.path"),
    ("[route.response]", '[route.batch]\npath = "in"\nname = "i"\n[route.response]', "{answer} is not known here"),
    (
        "[route.response]",
        '[route.upstream]\nbody = "{}"\n[route.batch]\npath = "in"\nname = "i"\n[route.response]',
        "a batch is answered whole",
    ),
    (
        "[route.response]",
        '[route.stream]\n[[route.stream.frame]]\non = "token"\ntext = "{token}"\n[route.response]',
        "say in stream.when",
    ),
    (
        '[route.response]\nbody = \'{"a": "{answer}"}\'',
        '[route.stream]\nframing = "ndjson"\n[[route.stream.frame]]\non = "token"\nevent = "x"\ntext = "y"',
        "route[0].stream.frame[0].event: only framing sse has event names",
    ),
]


@pytest.mark.parametrize(("old", "new", "told"), WRONG)
async def test_a_wrong_contract_stops_the_start_with_file_key_and_problem(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    assert old in GOOD
    with pytest.raises(BadSettings) as caught:
        served_paths([written(tmp_path, GOOD.replace(old, new))])
    assert "own.toml" in str(caught.value)
    assert told in str(caught.value)


async def test_every_problem_of_a_file_and_of_all_files_is_told_at_once(tmp_path: Path) -> None:
    twice = GOOD.replace("{answer}", "{anwser}").replace('"q"', '"q["')
    with pytest.raises(BadSettings) as caught:
        load_contracts([written(tmp_path, twice), written(tmp_path, "x = 1", "other.toml"), "nowhere"])
    assert len(caught.value.problems) >= 4
    assert "shipped are dify, langserve, plain, pointsman, r2r" in str(caught.value)


async def test_two_contracts_cannot_serve_one_path(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=re.escape("served by")):
        served_paths([written(tmp_path, GOOD), written(tmp_path, GOOD, "second.toml")])


async def test_a_contract_with_nothing_to_serve_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"pointsman.toml: has no \[\[route\]\] to serve"):
        served_paths(["pointsman"])


async def test_folders_files_and_shipped_names_are_found(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    assert [contract.name for contract in load_contracts([str(tmp_path), "r2r"])] == ["own", "r2r"]
    with pytest.raises(BadSettings, match=r"holds no \.toml"):
        load_contracts([str(tmp_path_with_nothing(tmp_path))])
    assert load_contract(tmp_path / "own.toml").routes[0].path == "/own"


def tmp_path_with_nothing(folder: Path) -> Path:
    empty = folder / "empty"
    empty.mkdir()
    return empty


async def test_the_contracts_of_the_settings_are_served(own: Served) -> None:
    told: Any = own.application.settings.http.contracts
    assert told
    assert (await own.client.get("/pairs")).headers["allow"] == "POST"


async def test_every_key_of_a_contract_is_described() -> None:
    described = (Path(__file__).parents[3] / "docs" / "http.md").read_text()

    def keys(table: type[BaseModel]) -> set[str]:
        found = set(table.model_fields)
        for field in table.model_fields.values():
            for inner in (field.annotation, *get_args(field.annotation)):
                if isinstance(inner, type) and issubclass(inner, BaseModel):
                    found |= keys(inner)
        return found

    every = keys(ContractFile)
    assert {"question", "framing", "drop_last", "equals", "enums"} <= every
    ways = ("`{}`", "[route.{}]", "[[{}]]")
    assert {key for key in every if not any(way.format(key) in described for way in ways)} <= {
        "route",
        "request",
        "error",
        "compare",
        "frame",
    }
