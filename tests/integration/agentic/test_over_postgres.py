"""The loop over the real database, with the real embedder and the real answer machinery."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from agentic.controllers.decide import decide_pattern
from agentic.controllers.offline import offline_pattern
from agentic.run import AgenticParts, answer_agentic, make_parts
from agentic.settings import AgenticSettings
from agentic.writer import StandardWriter
from standard.corpus.document import SourceDocument
from standard.database.pool import DatabaseConfig, Pool, open_pool
from standard.domain.answer import AnswerSource, Outcome, StopReason
from standard.domain.event import CitationMade, EventBody, PassagesFound, PlanMade, QueryIssued, TokenEmitted
from standard.domain.outcome import RouteResult
from standard.domain.passage import Scope
from standard.domain.question import Budget, Question
from standard.domain.text import UntrustedText
from standard.embedding.factory import open_embedder
from standard.embedding.protocol import Embedder
from standard.llm.client import OpenAiLlm
from standard.llm.config import LlmConfig
from standard.retrieval.reader import CorpusReader
from standard.retrieval.retriever import CorpusRetriever
from tests.integration.agentic.test_decide import reply
from tests.support.corpora import fill
from tests.support.model_server import ModelServer, Recorded, Reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCUMENTS = {
    "Kittiwake": "MV Kittiwake is a ferry of the Northern Isles line. She is 30 metres long and sails to Port Ness.",
    "Razorbill": "MV Razorbill is a ferry of the Northern Isles line. She is 40 metres long. Her captain is Anna Berg.",
    "Anna Berg": "Anna Berg was born in 1970 in Tromvik. She joined the line in 1999 as second officer.",
    "Tromvik": "Tromvik is a fishing village with two hundred inhabitants and a lighthouse built in 1881.",
    "Port Ness": "Port Ness has two piers and a slipway. The harbour office opens at seven.",
    "Lost property": "Lost property is kept in the office for ninety days and then given to charity.",
    "Pets": "Dogs travel free of charge on the outer deck. Cats must stay in a carrier.",
    "Refunds": "A ticket is refunded in full when a sailing is cancelled because of the weather.",
}


@dataclass
class World:
    pool: Pool
    embedder: Embedder
    retriever: CorpusRetriever
    library: CorpusReader

    def parts(self, llm: OpenAiLlm | None = None, settings: AgenticSettings | None = None) -> AgenticParts:
        patterns = {} if llm is None else {"decide": decide_pattern(llm)}
        return make_parts(
            self.library,
            self.embedder.embed_queries,
            StandardWriter(llm),
            offline_pattern(),
            patterns=patterns,
            settings=settings,
        )

    async def ask(
        self, text: str, parts: AgenticParts, *, top_k: int = 2, scope: Scope | None = None, steps: int | None = None
    ) -> tuple[RouteResult, list[EventBody]]:
        events: list[EventBody] = []

        async def emit(body: EventBody) -> None:
            events.append(body)

        question = Question(UntrustedText(text), scope or Scope(), top_k=top_k, budget=Budget(max_steps=steps))
        vector = (await self.embedder.embed_queries([text]))[0]
        first = await self.retriever.search(question.scope, text, vector, k=top_k)
        return await answer_agentic(question, first, vector, parts=parts, emit=emit), events


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(module_database_url: str) -> AsyncIterator[World]:
    async with open_pool(DatabaseConfig(url=module_database_url)) as pool, open_embedder() as embedder:
        documents = [
            SourceDocument(document_id=title.lower().replace(" ", "-"), title=title, text=text)
            for title, text in DOCUMENTS.items()
        ]
        await fill(pool, embedder, documents)
        secret = SourceDocument(
            document_id="secret", title="Razorbill secret", text="Razorbill's captain earns 90,000."
        )
        await fill(pool, embedder, [secret], tenant="other")
        retriever = CorpusRetriever(pool, embedder_id=embedder.id, embedder_checksum=embedder.checksum)
        yield World(pool, embedder, retriever, CorpusReader(pool, retriever))


def acquired(events: list[EventBody]) -> list[str]:
    found = [item.document_id for event in events if isinstance(event, PassagesFound) for item in event.passages]
    return list(dict.fromkeys(found))


async def test_the_offline_loop_follows_the_chain_from_ship_to_captain_to_village(world: World) -> None:
    result, events = await world.ask("Where was the captain of MV Razorbill born?", world.parts())
    assert {"razorbill", "anna-berg"} <= set(acquired(events))
    assert "tromvik" in acquired(events)  # the second hop
    assert result.source is AnswerSource.EXTRACTIVE
    assert result.text
    assert result.usage.llm_calls == 0
    assert result.usage.retrieved_tokens > 0


async def test_the_offline_loop_splits_a_comparison(world: World) -> None:
    result, events = await world.ask("Which ferry is longer, MV Kittiwake or MV Razorbill?", world.parts(), top_k=1)
    assert any(isinstance(event, PlanMade) for event in events)
    assert {"kittiwake", "razorbill"} <= set(acquired(events)[:3])
    assert result.text


async def test_extracted_answers_cite_exact_spans(world: World) -> None:
    result, events = await world.ask("How long is lost property kept?", world.parts())
    assert result.text == "".join(event.text for event in events if isinstance(event, TokenEmitted))
    made = [event.citation for event in events if isinstance(event, CitationMade)]
    assert tuple(made) == result.citations
    for citation in result.citations:
        assert citation.quote in DOCUMENTS[citation.title]
        assert "".join(result.text[citation.answer_start : citation.answer_end].split())


async def test_what_the_collection_does_not_hold_is_unanswerable(world: World) -> None:
    result, _ = await world.ask("What is the chemical formula of caffeine?", world.parts())
    assert result.outcome is Outcome.UNANSWERABLE
    assert result.stop_reason is StopReason.NO_EVIDENCE
    assert result.text


async def test_another_tenants_passages_are_out_of_reach_of_every_action(world: World) -> None:
    _, events = await world.ask("What does the captain of Razorbill earn?", world.parts(), top_k=5)
    assert "secret" not in acquired(events)


async def test_a_generated_answer_cites_by_run_wide_tags(world: World) -> None:
    everything = ["S1", "S2", "S3", "S4"]
    script = [
        reply(0.5, "search", missing=["her birth"], relevant=everything, query="birth year of Anna Berg"),
        reply(1.0, "answer", relevant=everything),
    ]

    def behave(request: Recorded) -> Reply:
        if request.number < len(script):
            return script[request.number]
        sections = re.findall(r'<passage id="(S\d)"[^>]*>(.*?)</passage', request.text("user"), re.DOTALL)
        tag = next(tag for tag, text in sections if "born in 1970" in text)
        return Reply(f"She was born in 1970 [{tag}]. Something else [S99].")

    async with ModelServer(behave) as server, OpenAiLlm(LlmConfig(server.base_url, "scripted", retries=0)) as llm:
        result, events = await world.ask("When was the captain of MV Razorbill born?", world.parts(llm))
    assert result.text == "She was born in 1970. Something else."
    assert [citation.document_id for citation in result.citations] == ["anna-berg"]
    assert result.citations[0].quote in DOCUMENTS["Anna Berg"]
    assert (result.outcome, result.stop_reason) == (Outcome.ANSWERED, StopReason.SUFFICIENT)
    assert [event.step for event in events if isinstance(event, QueryIssued)] == [1, 2]
    assert result.usage.llm_calls == 3


async def test_a_model_that_declines_leaves_no_invention(world: World) -> None:
    script = [reply(0.9, "answer", relevant=["S1"]), Reply("NOT_IN_PASSAGES")]
    async with ModelServer(script) as server, OpenAiLlm(LlmConfig(server.base_url, "scripted", retries=0)) as llm:
        result, _ = await world.ask("Who designed MV Razorbill?", world.parts(llm))
    assert (result.outcome, result.stop_reason) == (Outcome.UNANSWERABLE, StopReason.NO_EVIDENCE)
    assert "NOT_IN_PASSAGES" not in result.text


async def test_a_stream_cut_in_the_middle_keeps_what_was_said(world: World) -> None:
    script = [reply(0.9, "answer", relevant=["S1"]), Reply("Anna Berg [S1] is the captain of it all", cut_after=4)]
    async with ModelServer(script) as server, OpenAiLlm(LlmConfig(server.base_url, "scripted", retries=0)) as llm:
        result, events = await world.ask("Who captains MV Razorbill?", world.parts(llm))
    assert result.text.startswith("Anna Berg")
    assert result.text == "".join(event.text for event in events if isinstance(event, TokenEmitted))
    assert result.outcome is Outcome.ANSWERED_WITH_CAVEAT
    assert result.notices
