"""An existing RAG over gRPC: called as its contract says, and never missed when it fails, whatever way it fails."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import trustme

from router.process.serving import open_grpc
from router.settings import BadSettings
from router.upstream.route import UPSTREAM_ASKED_BACK, UPSTREAM_AWAY
from tests.integration.http.conftest import WHERE, serving, settings_for
from tests.integration.upstream.foreign import Foreign, Tells, contract, described, parts
from tests.integration.upstream.test_upstream import ASKED, FOLLOW_UP, ours, ours_without_its_model
from tests.support.model_server import Failure, ModelServer, Reply, always
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

pytestmark = pytest.mark.asyncio(loop_scope="module")

Code = grpc.StatusCode
ASK = "acme.rag.v1.Rag/Ask"


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return described(tmp_path_factory.mktemp("described"))


@pytest.mark.parametrize("by_reflection", [False, True])
async def test_a_foreign_method_is_passed_through_as_it_comes(
    module_database_url: str, tmp_path: Path, descriptors: Path, by_reflection: bool
) -> None:
    words = tuple(f"word{number} " for number in range(8))
    section = {"contract": contract(tmp_path, by_reflection=by_reflection), "api_key": "hush"}
    async with (
        Foreign([Tells(parts(*words), pause=0.05)], descriptors, reflects=by_reflection) as foreign,
        ours(foreign.url, module_database_url, tmp_path / "ours", section) as served,
    ):
        body = ASKED | {"history": FOLLOW_UP, "session_id": "s1"}
        async with served.client.stream(
            "POST", "/query", json=body, headers={"accept": "text/event-stream"}
        ) as response:
            arrived = [time.perf_counter() async for line in response.aiter_lines() if line.startswith("event: token")]
        assert len(arrived) == len(words)
        assert arrived[-1] - arrived[0] > 0.25
        answer = (await served.post("/query", body | {"request_id": "again"})).json()
    assert (answer["answer"], answer["answer_source"]) == ("".join(words), "upstream")
    assert answer["outcome"] == "answered"
    first, second = (turn["text"] for turn in FOLLOW_UP)
    assert foreign.asked[0] == {
        "query": WHERE,
        "maxHits": 5,
        "turns": [{"who": "human", "said": first}, {"who": "ai", "said": second}],
    }
    told = foreign.metadata[0]
    assert told["authorization"] == "Bearer hush"
    assert told["x-session"] not in {"", "s1"}
    assert told["x-query"] == WHERE


async def test_a_method_with_one_response_is_read_by_the_first_path_that_leads_to_text(
    module_database_url: str, tmp_path: Path, descriptors: Path
) -> None:
    replies: list[dict[str, Any]] = [
        {"answer": {"text": "One."}},
        {"others": [{"text": "no"}, {"text": "Two."}]},
        {"extra": {"said": "Three."}},
    ]
    section = {"contract": contract(tmp_path), "path": ASK}
    async with (
        Foreign([Tells((reply,)) for reply in replies], descriptors) as foreign,
        ours(foreign.url, module_database_url, tmp_path / "ours", section) as served,
    ):
        answers = [(await served.post("/query", ASKED)).json() for _ in replies]
    assert [answer["answer"] for answer in answers] == ["One.", "Two.", "Three."]
    assert {answer["answer_source"] for answer in answers} == {"upstream"}


async def test_metadata_takes_no_line_and_no_letters_of_a_question(
    module_database_url: str, tmp_path: Path, descriptors: Path
) -> None:
    asked = "Where is it?\r\nx-admin: yes \u00e9\u4e2d\x01"
    async with (
        Foreign([Tells(parts("Yes."))], descriptors) as foreign,
        ours(foreign.url, module_database_url, tmp_path / "ours", {"contract": contract(tmp_path)}) as served,
    ):
        answer = (await served.post("/query", ASKED | {"question": asked})).json()
    assert answer["answer_source"] == "upstream"
    assert foreign.metadata[0]["x-query"] == "Where is it?  x-admin: yes ???"
    assert "x-admin" not in foreign.metadata[0]


BAD: dict[str, tuple[str, Tells, str]] = {
    "hangs before a word": ("", Tells(then="hang"), "timeout"),
    "is cut before a word": ("", Tells(then="cut"), "status"),
    "answers nothing": ("", Tells(), "malformed"),
    "says nothing and ends": ("", Tells(parts()), "malformed"),
    "tells of an error": ("", Tells(({"trouble": "no"},)), "malformed"),
    "sends garbage": ("", Tells((b"\xff\xff\xff\xff<html>Login</html>",)), "malformed"),
    "sends text that is none": ("", Tells((b"\x0a\x02\xff\xfe",)), "malformed"),
    "sends a number where text is due": (ASK, Tells(({"extra": {"said": 7}},)), "malformed"),
    "answers twice": (ASK, Tells(({"answer": {"text": "a"}}, {"answer": {"text": "b"}})), "malformed"),
    "sends a message that is too large": ("", Tells(({"piece": "x" * 9_000_000},)), "status"),
    "sends too much": ("", Tells(({"piece": "x" * 2_500_000},)), "malformed"),
    **{f"answers {code.name}": ("", Tells(then=code), "status") for code in Code if code is not Code.OK},
}
REFUSED = "INVALID_ARGUMENT NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED FAILED_PRECONDITION OUT_OF_RANGE UNIMPLEMENTED"
BAD |= {f"answers {name}": (*BAD[f"answers {name}"][:2], "refused") for name in (*REFUSED.split(), "UNAUTHENTICATED")}
BAD["answers DEADLINE_EXCEEDED"] = (*BAD["answers DEADLINE_EXCEEDED"][:2], "timeout")


@pytest.mark.parametrize("what", BAD)
async def test_ours_answers_where_a_foreign_method(
    module_database_url: str, tmp_path: Path, descriptors: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, tells, kind = BAD[what]
    async with (
        Foreign([tells], descriptors) as foreign,
        ours(
            foreign.url, module_database_url, tmp_path / "ours", {"contract": contract(tmp_path), "path": path}
        ) as served,
    ):
        began = time.perf_counter()
        answer = (await served.post("/query", ASKED)).json()
        assert time.perf_counter() - began < 6.0
    assert "shed at Alder Wharf" in answer["answer"]
    assert (answer["answer_source"], answer["outcome"]) == ("extractive", "answered_with_caveat")
    assert answer["notices"][0] == UPSTREAM_AWAY
    assert len(foreign.asked) == 1
    shown = capsys.readouterr()
    assert f"kind={kind}" in shown.out + shown.err
    assert "secret words" not in json.dumps(answer) + shown.out + shown.err


async def _says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def _speaks_html(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(10)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\n<html")
    await writer.drain()
    writer.close()


@pytest.mark.parametrize("peer", [_says_nothing, _speaks_html, None])
async def test_ours_answers_where_what_listens_speaks_no_grpc(
    module_database_url: str,
    tmp_path: Path,
    peer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] | None,
) -> None:
    server = await asyncio.start_server(peer or _says_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if peer is None:  # nobody listens
        server.close()
        await server.wait_closed()
    try:
        async with ours(
            f"grpc://127.0.0.1:{port}", module_database_url, tmp_path / "ours", {"contract": contract(tmp_path)}
        ) as served:
            began = time.perf_counter()
            answer = (await served.post("/query", ASKED)).json()
            assert time.perf_counter() - began < 4.0
            assert answer["answer_source"] == "extractive"
    finally:
        server.close()


@pytest.mark.parametrize("then", ["cut", "hang", Code.UNAVAILABLE, Code.INTERNAL, Code.CANCELLED, Code.OK], ids=str)
async def test_what_came_before_a_break_stays(
    module_database_url: str, tmp_path: Path, descriptors: Path, then: grpc.StatusCode | str
) -> None:
    section = {"contract": contract(tmp_path), "retries": 3}
    async with (
        Foreign([Tells(parts("It is ", "in ")[:2], pause=0.1, then=then)], descriptors) as foreign,
        ours(foreign.url, module_database_url, tmp_path / "ours", section) as served,
    ):
        answer = (await served.post("/query", ASKED)).json()
    assert answer["answer"] == "It is in "
    assert answer["outcome"] == "answered_with_caveat"
    assert any("broke off" in notice for notice in answer["notices"])
    assert len(foreign.asked) == 1  # no word is said twice


@pytest.mark.parametrize("then", ["cut", Code.INTERNAL, Code.INVALID_ARGUMENT, Code.OK], ids=str)
async def test_a_method_that_always_breaks_off_after_its_first_word_is_left_alone(
    module_database_url: str, tmp_path: Path, descriptors: Path, then: grpc.StatusCode | str
) -> None:
    section = {"contract": contract(tmp_path), "breaker_failures": 3, "breaker_seconds": 60.0, "retries": 3}
    async with (
        Foreign([Tells(parts("It is ", "in ")[:1], pause=0.05, then=then)], descriptors) as foreign,
        ours(foreign.url, module_database_url, tmp_path / "ours", section) as served,
    ):
        sources = [(await served.post("/query", ASKED)).json()["answer_source"] for _ in range(6)]
        assert sources == ["upstream"] * 3 + ["extractive"] * 3
        assert len(foreign.asked) == 3
        await served.application.health.check()
        assert served.application.health.state["upstream"] is False


async def test_a_whole_answer_forgets_the_cuts_before_it(
    module_database_url: str, tmp_path: Path, descriptors: Path
) -> None:
    cut, fine = Tells(parts("It is ")[:1], then=Code.INTERNAL), Tells(parts("Yes."))
    section = {"contract": contract(tmp_path), "breaker_failures": 2, "breaker_seconds": 60.0}
    async with (
        Foreign([cut, fine, cut, fine], descriptors) as foreign,
        ours(foreign.url, module_database_url, tmp_path / "ours", section) as served,
    ):
        for _ in range(4):
            await served.post("/query", ASKED)
        assert len(foreign.asked) == 4
        await served.application.health.check()
        assert served.application.health.state["upstream"] is True


async def test_a_busy_method_is_tried_again_and_a_failing_one_left_alone(
    module_database_url: str, tmp_path: Path, descriptors: Path
) -> None:
    fine, busy = Tells(parts("Yes.")), Tells(then=Code.RESOURCE_EXHAUSTED)
    section = {
        "contract": contract(tmp_path),
        "retries": 1,
        "breaker_failures": 2,
        "breaker_seconds": 3.0,
        "retry_budget": 0.5,
    }
    async with (
        Foreign([busy, fine, busy, busy, fine], descriptors) as foreign,
        ours(foreign.url, module_database_url, tmp_path / "ours", section) as served,
    ):
        assert (await served.post("/query", ASKED)).json()["answer"] == "Yes."
        assert (await served.post("/query", ASKED)).json()["answer_source"] == "extractive"
        assert len(foreign.asked) == 4
        assert (await served.post("/query", ASKED)).json()["answer_source"] == "extractive"
        assert len(foreign.asked) == 4  # left alone
        await served.application.health.check()
        assert served.application.health.state["upstream"] is False
        await asyncio.sleep(3.1)
        assert (await served.post("/query", ASKED)).json()["answer_source"] == "upstream"


async def test_an_upstream_that_comes_back_is_found_again(
    module_database_url: str, tmp_path: Path, descriptors: Path
) -> None:
    async with Foreign([Tells(parts("Yes."))], descriptors) as foreign:
        port = foreign.port
    section = {"contract": contract(tmp_path), "breaker_failures": 100}
    async with ours(foreign.url, module_database_url, tmp_path / "ours", section) as served:
        assert (await served.post("/query", ASKED)).json()["answer_source"] == "extractive"
        async with Foreign([Tells(parts("Back."))], descriptors, port=port):
            sources = ""
            async with asyncio.timeout(8.0):
                while sources != "upstream":
                    await asyncio.sleep(0.2)
                    sources = (await served.post("/query", ASKED)).json()["answer_source"]


async def test_a_client_that_leaves_ends_the_call_of_the_method(
    module_database_url: str, tmp_path: Path, descriptors: Path
) -> None:
    section = {"contract": contract(tmp_path), "idle_timeout_seconds": 30.0, "breaker_failures": 2}
    async with (
        Foreign([Tells(parts("It is ")[:1], then="hang")], descriptors) as foreign,
        ours(foreign.url, module_database_url, tmp_path / "ours", section) as served,
    ):
        for number in (1, 2):
            call = asyncio.create_task(served.client.post("/query", json=ASKED))
            await until(lambda number=number: len(foreign.asked) == number)  # type: ignore[misc]
            await asyncio.sleep(0.1)
            call.cancel()
            await asyncio.wait([call])
            await until(lambda number=number: foreign.gone == number, 2.0)  # type: ignore[misc]
        await served.application.health.check()
        assert served.application.health.state["upstream"] is True  # it was not what failed


async def test_behind_ours_a_foreign_method_stands_in_for_a_model_that_failed(
    module_database_url: str, tmp_path: Path, descriptors: Path
) -> None:
    section = {"contract": contract(tmp_path), "use": "fallback"}
    async with (
        Foreign([Tells(parts("In the ", "shed.")), Tells(then="hang"), Tells(then="cut")], descriptors) as foreign,
        ours_without_its_model(foreign.url, module_database_url, tmp_path / "ours", section) as served,
    ):
        stood_in = (await served.post("/query", ASKED)).json()
        assert (stood_in["answer"], stood_in["answer_source"]) == ("In the shed.", "upstream")
        assert stood_in["outcome"] == "answered_with_caveat"
        for _ in range(2):
            neither = (await served.post("/query", ASKED)).json()
            assert neither["answer_source"] == "extractive"
            assert UPSTREAM_AWAY in neither["notices"]


async def test_a_server_that_does_not_describe_itself_or_describes_something_else_is_no_answer(
    module_database_url: str, tmp_path: Path, descriptors: Path
) -> None:
    section = {"contract": contract(tmp_path, by_reflection=True)}
    async with (
        Foreign([Tells(parts("Yes."))], descriptors) as foreign,
        ours(foreign.url, module_database_url, tmp_path / "ours", section) as served,
    ):
        assert (await served.post("/query", ASKED)).json()["answer_source"] == "extractive"
        assert foreign.asked == []


async def test_a_certificate_is_checked_and_one_of_ours_is_shown(
    module_database_url: str, tmp_path: Path, descriptors: Path
) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    theirs, mine = authority.issue_cert("127.0.0.1"), authority.issue_cert("gateway.example")
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "other", "certificate", "key")}
    authority.cert_pem.write_to_path(files["ca"])
    stranger.cert_pem.write_to_path(files["other"])
    mine.cert_chain_pems[0].write_to_path(files["certificate"])
    mine.private_key_pem.write_to_path(files["key"])
    pair = (theirs.private_key_pem.bytes(), theirs.cert_chain_pems[0].bytes())
    credentials = grpc.ssl_server_credentials([pair], authority.cert_pem.bytes(), require_client_auth=True)
    shown = {"certificate": str(files["certificate"]), "key": str(files["key"])}
    sources = {}
    async with Foreign([Tells(parts("Yes."))], descriptors, credentials=credentials) as foreign:
        url = foreign.url.replace("grpc://", "grpcs://")
        for name, section in {
            "right": shown | {"ca": str(files["ca"])},
            "no certificate": {"ca": str(files["ca"])},
            "wrong authority": shown | {"ca": str(files["other"])},
        }.items():
            with_contract = section | {"contract": contract(tmp_path)}
            async with ours(url, module_database_url, tmp_path / name, with_contract) as served:
                sources[name] = (await served.post("/query", ASKED)).json()["answer_source"]
    assert sources == {"right": "upstream", "no certificate": "extractive", "wrong authority": "extractive"}


async def test_another_pointsman_is_the_standard_route(module_database_url: str, tmp_path: Path) -> None:
    words = ("It is ", "in the shed ", "at Alder Wharf.")
    async with (
        ModelServer(always(Reply(pieces=(*words, " [S1]"), token_delay=0.05))) as model,
        serving(
            settings_for(
                module_database_url,
                tmp_path / "legacy",
                llm={"base_url": model.base_url, "model": "m"},
                routing={"escalate": False},
            )
        ) as legacy,
        open_grpc(legacy.application) as port,
        ours(f"grpc://127.0.0.1:{port}", module_database_url, tmp_path / "ours", {"contract": "pointsman"}) as served,
    ):
        body = ASKED | {"history": FOLLOW_UP, "session_id": "s1"}
        streamed = await served.post("/query", body, accept="application/x-ndjson")
        events = [json.loads(line) for line in streamed.text.splitlines()]
        assert sum("token" in event for event in events) >= 2
        answer = events[-1]["completed"]
        assert answer["answer"].strip() == "It is in the shed at Alder Wharf."
        assert (answer["answer_source"], answer["outcome"]) == ("upstream", "answered")
        nothing = (await served.post("/query", ASKED | {"question": "Who won the chess cup of 1911?"})).json()
        assert nothing["answer_source"] == "upstream"


async def test_outcome_and_notices_of_another_pointsman_are_ours(module_database_url: str, tmp_path: Path) -> None:
    """Its model fails, and it says so: what it gives is an answer with a caveat, or none."""
    async with (
        ModelServer(always(Failure(500))) as model,
        serving(
            settings_for(
                module_database_url,
                tmp_path / "legacy",
                llm={"base_url": model.base_url, "model": "m", "retries": 0},
                routing={"escalate": False},
            )
        ) as legacy,
        open_grpc(legacy.application) as port,
        ours(f"grpc://127.0.0.1:{port}", module_database_url, tmp_path / "ours", {"contract": "pointsman"}) as served,
    ):
        outcomes = set()
        for text in (WHERE, "Who won the chess cup of 1911?", "zzyzx qwfpgj"):
            body = ASKED | {"question": text}
            theirs, answer = (await legacy.post("/query", body)).json(), (await served.post("/query", body)).json()
            assert (answer["answer"].strip(), answer["answer_source"]) == (theirs["answer"].strip(), "upstream")
            assert (answer["outcome"], answer["notices"]) == (theirs["outcome"], theirs["notices"])
            outcomes.add(answer["outcome"])
            assert answer["stop_reason"] == ("no_evidence" if answer["outcome"] == "unanswerable" else "sufficient")
        counted = served.application.metrics.registry.get_sample_value
        for outcome, reason in (("unanswerable", "no_evidence"), ("answered_with_caveat", "sufficient")):
            labels = {"route": "standard", "outcome": outcome, "stop_reason": reason}
            assert counted("pointsman_answers_total", labels)
        assert not counted("pointsman_answers_total", labels | {"outcome": "answered"})
    assert outcomes == {"answered_with_caveat", "unanswerable"}


@pytest.mark.parametrize(
    ("extra", "outcome", "reason", "notices"),
    [
        ({"how": "OUTCOME_UNANSWERABLE"}, "unanswerable", "no_evidence", []),
        ({"how": "Answered_With_Caveat", "warnings": ["Old.", " ", 7]}, "answered_with_caveat", "sufficient", ["Old."]),
        ({"how": "blocked"}, "blocked", "output_blocked", []),
        ({"how": "needs_clarification"}, "answered_with_caveat", "needs_input", [UPSTREAM_ASKED_BACK]),
        ({"how": "splendid", "warning": "x" * 5_000}, "answered", "sufficient", ["x" * 1_000]),
        ({"how": 7, "warnings": ["n"] * 50}, "answered", "sufficient", ["n"] * 16),
    ],
)
async def test_what_a_foreign_method_tells_of_its_end_is_carried_over(
    module_database_url: str,
    tmp_path: Path,
    descriptors: Path,
    extra: dict[str, Any],
    outcome: str,
    reason: str,
    notices: list[str],
) -> None:
    messages = ({"piece": "Well."}, {"whole": {"answer": {"text": "Well."}, "extra": extra}})
    async with (
        Foreign([Tells(messages)], descriptors) as foreign,
        ours(foreign.url, module_database_url, tmp_path / "ours", {"contract": contract(tmp_path)}) as served,
    ):
        answer = (await served.post("/query", ASKED)).json()
    assert (answer["answer"], answer["answer_source"]) == ("Well.", "upstream")
    assert (answer["outcome"], answer["stop_reason"], answer["notices"]) == (outcome, reason, notices)


WRONG = {
    "no such outcome": ('"whole.extra.how"', '"whole.how"', "has no field how"),
    "no such service": ("Rag/Tell", "Rog/Tell", "no service acme.rag.v1.Rog"),
    "no such method": ("Rag/Tell", "Rag/Say", "has no method Say; it has Ask, Listen, Tell"),
    "a stream of requests": ("Rag/Tell", "Rag/Listen", "a stream of requests"),
    "no such field": ('token = "piece"', 'token = "delta.text"', "acme.rag.v1.Part has no field delta"),
    "no such inner field": ("whole.answer.text", "whole.answer.said", "has no field said"),
    "a number": ("whole.answer.text", "whole.answer.words", "words is no text"),
    "a list": ('token = "piece"', 'token = "whole.others.text"', "others is a list"),
    "no list": ('token = "piece"', 'token = "piece[0]"', "piece is no list"),
    "a message": ('token = "piece"', 'token = "whole.answer"', "answer is no text"),
    "below text": ('token = "piece"', 'token = "piece.text"', "piece holds no fields"),
    "another request": ('"query": "{question}", "maxHits"', '"q": "{question}", "maxHits"', 'no field named "q"'),
    "another type": ('"maxHits": "{top_k}"', '"maxHits": "{question}"', "maxHits"),
    "a request that is no object": ('body = \'{"query": "{question}"}\'', "body = '[1]'", "is no acme.rag.v1"),
    "no file": ("acme.binpb", "other.binpb", "other.binpb"),
    "another file": ("acme.binpb", "acme/rag.proto", "is no FileDescriptorSet"),
    "a source of requests": ('token = "piece"', 'token = "@header.x"', "paths lead into the response"),
    "metadata of grpc's own": ('"x-session"', '"grpc-timeout"', "grpc[0].metadata"),
    "metadata with a line": ('"x-session"', '"x\\ny"', "grpc[0].metadata"),
    "no answer": ('answer = ["answer.text", "others[-1].text", "extra.said"]', "", "give answer"),
    "no method": ("acme.rag.v1.Rag/Ask", "/Ask", "grpc[1].method"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_contract_of_a_method_stops_the_start(
    module_database_url: str, tmp_path: Path, what: str
) -> None:
    old, new, said = WRONG[what]
    path = contract(tmp_path)
    with open(path) as file:  # noqa: ASYNC230, PTH123 - a test's own small file
        text = file.read()
    assert old in text
    with open(path, "w") as file:  # noqa: ASYNC230, PTH123
        file.write(text.replace(old, new))
    which = ASK if what == "a request that is no object" else ""
    settings = settings_for(
        module_database_url,
        tmp_path / "ours",
        upstream={"url": "grpc://127.0.0.1:9", "contract": path, "path": which},
    )
    with pytest.raises(BadSettings) as caught:
        async with serving(settings):
            pass
    (problem, *_) = caught.value.problems
    assert "acme" in problem
    assert said in problem


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"url": "grpc://x:1", "contract": "plain"}, r"has no \[\[grpc\]\]"),
        ({"url": "http://x:1", "contract": "pointsman"}, "has no route"),
        ({"url": "grpc://x:1", "contract": "pointsman", "path": "a.B/C"}, "with method a.B/C"),
        ({"url": "grpcs://x:1", "contract": "pointsman", "ca": "/nowhere.pem"}, "upstream.ca"),
        ({"url": "tcp://x:1", "contract": "pointsman"}, "upstream.url"),
        ({"url": "grpcs://", "contract": "pointsman"}, "upstream.url.*names no host"),
        ({"url": "grpc://:::", "contract": "pointsman"}, "upstream.url.*names no host"),
        ({"url": "grpc://x:99999", "contract": "pointsman"}, "upstream.url.*is no address"),
        ({"url": "grpc://x:1/path", "contract": "pointsman"}, "upstream.url.*host and port"),
        ({"url": "grpc://me@x:1", "contract": "pointsman"}, "upstream.url.*host and port"),
        ({"url": "http://", "contract": "plain"}, "upstream.url.*names no host"),
        ({"url": "http://[::1", "contract": "plain"}, "upstream.url.*is no address"),
    ],
)
async def test_a_wrong_upstream_over_grpc_stops_the_start(
    module_database_url: str, tmp_path: Path, section: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadSettings, match=said):
        async with serving(settings_for(module_database_url, tmp_path, upstream=section)):
            pass
