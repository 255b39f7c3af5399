"""What compression saves and keeps: transcripts of long runs that a reader answered by hand, over the demo corpus.

`long_transcripts.jsonl` holds, for questions that need eight passages or more, the replies that were written to the
judge, the records that took the passages' place, and the answer. Prompts, retrieval and the count of tokens are those
of today.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest_asyncio

from agentic.run import answer_agentic
from agentic.state import RunState
from router.application import Application
from router.asked import asked_text, embedded_text
from standard.domain.event import ContextCompressed, EventBody
from standard.domain.outcome import RouteResult
from standard.domain.passage import Scope
from standard.domain.question import Question, Route
from standard.domain.text import UntrustedText
from tests.support.model_server import ModelServer, Recorded, Reply

TRANSCRIPTS = [
    json.loads(line)
    for line in (Path(__file__).parent / "long_transcripts.jsonl").read_text(encoding="utf-8").splitlines()
]
KINDS = {"You decide whether": "judge", "You keep the record": "record", "You answer one question": "answer"}

_log = logging.getLogger(__name__)


@dataclass
class Replayed:
    """A run of a transcript: its result, its last state, and what compression told."""

    result: RouteResult
    state: RunState
    compressions: list[ContextCompressed]
    answering: str


@dataclass
class Mind:
    """Says what was written by hand, in order within each kind of request; remembers what it was shown last."""

    row: dict[str, object]
    said: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("judge", "record", "answer"), 0))
    shown: str = ""

    def __call__(self, request: Recorded) -> Reply:
        kind = next(kind for words, kind in KINDS.items() if words in request.text("system"))
        texts = self.row[kind]
        number = self.said[kind]
        self.said[kind] += 1
        self.shown = request.text()
        return Reply(str(texts[number]) if isinstance(texts, list) else str(texts))


Replay = Callable[[dict[str, object], bool], Awaitable[Replayed]]


@pytest_asyncio.fixture
async def replay(demo: Application, server: ModelServer) -> Replay:
    async def run(row: dict[str, object], compress: bool) -> Replayed:
        mind = Mind(row)
        server.script = mind
        text = str(row["question"])
        events: list[EventBody] = []
        states: list[RunState] = []

        async def emit(body: EventBody) -> None:
            events.append(body)

        question = Question(UntrustedText(text), Scope(), route=Route.AGENTIC, top_k=5)
        vector = await demo.embed(embedded_text(question))
        found = await demo.passages.search(Scope(), asked_text(question), vector, k=5)
        parts = demo.agentic
        compression = replace(parts.settings.compression, enabled=compress)
        result = await answer_agentic(
            question,
            found,
            vector,
            parts=replace(parts, settings=replace(parts.settings, compression=compression)),
            emit=emit,
            controller="decide",
            watch=states.append,
        )
        wanted = {kind: len(row[kind]) if isinstance(row[kind], list) else 1 for kind in mind.said}  # type: ignore[arg-type]
        assert mind.said == (wanted if compress else {**wanted, "record": 0})
        told = [event for event in events if isinstance(event, ContextCompressed)]
        return Replayed(result, states[-1], told, mind.shown)

    return run


async def test_a_record_saves_seven_tenths_of_the_context_and_keeps_every_source_of_the_answer(replay: Replay) -> None:
    assert len(TRANSCRIPTS) >= 4
    for row in TRANSCRIPTS:
        run = await replay(row, True)
        assert run.compressions[0].step >= 3
        for told in run.compressions:
            _log.info("step %d: %d tokens of context, then %d", told.step, told.tokens_before, told.tokens_after)
            assert len(told.passage_ids) >= 4
            assert told.tokens_after <= 0.3 * told.tokens_before
        evidence = run.state.evidence
        recorded = {held.passage.passage_id for held in evidence.held if held.dropped}
        assert recorded
        named = {int(number) for number in re.findall(r"S(\d+)", str(row["answer"]))}
        citations = {citation.passage_id: citation for citation in run.result.citations}
        for number in named:
            held = evidence.by_ref(number)
            assert held is not None
            assert f'<passage id="S{number}"' in run.answering
            assert held.passage.passage_id in citations, number
        assert recorded & set(citations)
        texts = {held.passage.passage_id: held.passage.text.raw for held in evidence.held}
        for citation in run.result.citations:
            assert citation.quote
            assert citation.quote in texts[citation.passage_id]


async def test_a_record_costs_calls_and_lets_the_answer_see_every_source_in_a_shorter_prompt(replay: Replay) -> None:
    billed, words, cited_unseen = dict.fromkeys((True, False), 0), dict.fromkeys((True, False), 0), {True: 0, False: 0}
    for row in TRANSCRIPTS:
        named = set(re.findall(r"S\d+", str(row["answer"])))
        for compress in (True, False):
            run = await replay(row, compress)
            billed[compress] += run.result.usage.billed_tokens
            words[compress] += len(run.answering.split())
            cited_unseen[compress] += sum(f'<passage id="{tag}"' not in run.answering for tag in named)
    _log.info("billed tokens with a record %d, without %d", billed[True], billed[False])
    _log.info("words of the answering prompts with a record %d, without %d", words[True], words[False])
    _log.info("sources of the answers that these do not show: %d, without a record %d", *cited_unseen.values())
    assert words[True] < words[False]
    assert cited_unseen[True] == 0 < cited_unseen[False]
    assert billed[True] < 1.3 * billed[False]
