"""Compression against a model over real HTTP."""

from __future__ import annotations

from agentic.compression import LlmCompressor
from agentic.controllers.decide import decide_pattern
from agentic.controllers.offline import offline_pattern
from agentic.run import AgenticParts, make_parts
from agentic.settings import AgenticSettings, CompressionSettings
from agentic.writer import StandardWriter
from standard.domain.answer import Outcome
from standard.domain.event import ContextCompressed, EventBody
from standard.domain.outcome import RouteResult
from standard.llm.client import OpenAiLlm
from tests.integration.agentic.test_decide import reply
from tests.support.memory_retriever import MemoryLibrary, embed, passage
from tests.support.model_server import ModelServer, Recorded, Reply, json_reply
from tests.unit.agentic.scripted import run

FILLER = " The log of the harbour office has more on this, page after page, none of it to the point." * 6
NAMES = ("Anna Berg", "Bo Dahl", "Cora Eng", "Dag Foss", "Eva Gran", "Finn Hage")


def library() -> MemoryLibrary:
    return MemoryLibrary(
        [
            passage(f"d{index}", f"{name} commands ship number {index}.{FILLER} Document {index}.", title=name)
            for index, name in enumerate(NAMES)
        ]
    )


class Model:
    """Searches three times, then answers; writes the record it is given."""

    def __init__(self, record: Reply) -> None:
        self.record = record
        self.queries = iter(("ship number 1", "ship number 3", "ship number 5", "nothing"))

    def __call__(self, request: Recorded) -> Reply:
        system = request.text("system")
        refs = [f"S{number}" for number in range(1, 9)]
        if "keep the record" in system:
            return self.record
        if "decide whether" in system:
            asked = next(self.queries)
            move = "answer" if asked == "nothing" else "search"
            known = [{"text": "Anna Berg commands ship number 0", "sources": ["S1"]}]
            return reply(0.4 if move == "search" else 0.9, move, query=asked, relevant=refs, known=known, missing=["x"])
        return Reply("Anna Berg commands ship 0 [S1]. Cora Eng commands ship 2 [S2].")


def parts(llm: OpenAiLlm, **changes: object) -> AgenticParts:
    settings = AgenticSettings(compression=CompressionSettings(**changes))  # type: ignore[arg-type]
    return make_parts(
        library(), embed, StandardWriter(llm), offline_pattern(), patterns={"decide": decide_pattern(llm)},
        settings=settings, compress=LlmCompressor(llm),
    )  # fmt: skip


async def ask(llm: OpenAiLlm, **changes: object) -> tuple[RouteResult, list[EventBody]]:
    return await run("Who commands ship number 0?", parts(llm, **changes), library(), top_k=2)


async def test_raw_passages_give_way_to_a_record_with_every_cited_source(server: ModelServer, llm: OpenAiLlm) -> None:
    facts = [{"text": f"{name} commands ship number {index}", "sources": [f"S{index + 1}"]} for index, name in
             enumerate(NAMES[1:3], start=1)]  # fmt: skip
    server.script = Model(json_reply({"facts": facts, "open_questions": ["x"], "contradictions": []}))
    result, events = await ask(llm)
    (compressed,) = [event for event in events if isinstance(event, ContextCompressed)]
    assert compressed.step == 3
    assert compressed.tokens_after < 0.3 * compressed.tokens_before
    assert len(compressed.passage_ids) >= 4
    answer = server.requests[-1].text("user")
    assert "Anna Berg commands ship number 0 (S1)" in answer  # known to the judge, carried over
    assert answer.count("page after page") <= 2  # what came after it alone stands there raw
    assert [citation.title for citation in result.citations] == ["Anna Berg", result.citations[1].title]
    assert all(citation.quote for citation in result.citations)


async def test_a_record_that_would_be_longer_than_its_sources_is_thrown_away(
    server: ModelServer, llm: OpenAiLlm
) -> None:
    long = [{"text": f"{number} " + "word " * 75, "sources": ["S1"]} for number in range(24)]
    server.script = Model(json_reply({"facts": long, "open_questions": [], "contradictions": []}))
    result, events = await ask(llm)
    assert not [event for event in events if isinstance(event, ContextCompressed)]
    assert result.text


async def test_a_record_that_cannot_be_read_costs_two_calls_and_nothing_else(
    server: ModelServer, llm: OpenAiLlm
) -> None:
    server.script = Model(Reply("no JSON at all"))
    result, events = await ask(llm)
    assert not [event for event in events if isinstance(event, ContextCompressed)]
    assert sum("keep the record" in request.text("system") for request in server.requests) == 2
    assert result.outcome is not Outcome.UNANSWERABLE


async def test_few_passages_and_early_steps_are_left_alone(server: ModelServer, llm: OpenAiLlm) -> None:
    server.script = Model(json_reply({"facts": [], "open_questions": [], "contradictions": []}))
    _, events = await ask(llm, min_passages=99)
    assert not [event for event in events if isinstance(event, ContextCompressed)]
    server.script = Model(json_reply({"facts": [], "open_questions": [], "contradictions": []}))
    _, events = await ask(llm, enabled=False)
    assert not [event for event in events if isinstance(event, ContextCompressed)]


async def test_nothing_is_compressed_once_the_model_knows_enough(server: ModelServer, llm: OpenAiLlm) -> None:
    known = [{"text": "Anna Berg commands ship number 0", "sources": ["S1"]}]
    done = reply(1.0, "answer", relevant=["S1", "S2", "S3", "S4"], known=known)
    server.script = [done, Reply("Anna Berg commands ship 0 [S1].")]
    _, events = await run("Who commands ship number 0?", parts(llm, every_steps=1), library(), top_k=4)
    assert not [event for event in events if isinstance(event, ContextCompressed)]
    assert len(server.requests) == 2


async def test_what_was_judged_useless_does_not_come_back_in_the_place_of_what_was_compressed(
    server: ModelServer, llm: OpenAiLlm
) -> None:
    record = {"facts": [{"text": "Anna Berg commands ship number 0", "sources": ["S1"]}], "open_questions": ["x"]}
    known = [{"text": "Anna Berg commands ship number 0", "sources": ["S1"]}]

    def model(request: Recorded) -> Reply:
        system = request.text("system")
        if "keep the record" in system:
            return json_reply(record | {"contradictions": []})
        if "decide whether" in system:
            first = request.number == 0
            of_use = ["S1", "S2", "S3", "S4"] if first else []
            return reply(
                0.4 if first else 0.9, "search" if first else "answer", query="5", relevant=of_use, known=known
            )
        return Reply("Anna Berg commands ship 0 [S1].")

    server.script = model
    await run("Who commands ship number 0?", parts(llm, every_steps=1), library(), top_k=4)
    told = server.requests[-1].text("user")
    assert "Anna Berg commands ship number 0" in told
    assert "Finn Hage" not in told
    assert "Eva Gran" not in told
