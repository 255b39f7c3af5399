"""What the loop costs beside one shot: transcripts of a reader who answered by hand, replayed over the demo corpus.

`transcripts.jsonl` holds, for questions that need two or three documents, the replies that were written for the loop
(pattern `decide`), in order, those for the pattern `tools` (calls as name and arguments), and the one for the single
shot. Prompts and retrieval are those of today, so prompts that grow are seen here. Tokens are the scripted server's
count, the same for all; the definitions of tools are counted here as well, as servers bill them.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from agentic.controllers.tools import TOOLS
from router.application import Application
from router.evaluation.answers.asking import Arm, Asker, Place
from router.evaluation.answers.questions import AskedQuestion
from router.evaluation.answers.record import Record
from standard.domain.passage import Scope
from standard.domain.question import Route
from tests.support.model_server import Call, ModelServer, Reply

TRANSCRIPTS = [
    json.loads(line) for line in (Path(__file__).parent / "transcripts.jsonl").read_text(encoding="utf-8").splitlines()
]
AGENTIC_SHARE = 0.35
DEFINITIONS = len(json.dumps([asdict(tool) for tool in TOOLS])) // 4
"""Tokens of the tools' definitions in a turn, by the scripted server's measure, which leaves them out."""

_log = logging.getLogger(__name__)


Said = str | list[str]
"""A text, or a call of a tool as its name and its arguments."""


def reply(said: Said) -> Reply:
    return Reply(said) if isinstance(said, str) else Reply(calls=(Call(*said),))


async def asked(demo: Application, server: ModelServer, arm: Arm, replies: list[list[Said]]) -> list[Record]:
    asker = Asker(demo, top_k=5)
    records = []
    for row, texts in zip(TRANSCRIPTS, replies, strict=True):
        server.requests.clear()
        server.script = lambda request, texts=texts: reply(texts[min(request.number, len(texts) - 1)])
        question = AskedQuestion(row["question"], row["question"])
        records.append(await asker.ask(question, Place("demo", Scope(), by_title=False), arm))
        assert records[-1].llm_calls == len(texts)
    return records


async def test_the_loop_bills_less_than_four_times_one_shot_and_a_third_of_questions_in_it_about_twice(
    demo: Application, server: ModelServer
) -> None:
    loop = await asked(demo, server, Arm("loop", Route.AGENTIC, "decide"), [row["loop"] for row in TRANSCRIPTS])
    single = await asked(demo, server, Arm("single", Route.STANDARD), [[row["single_shot"]] for row in TRANSCRIPTS])
    ratio = fmean(one.billed_tokens for one in loop) / fmean(one.billed_tokens for one in single)
    blended = 1.0 - AGENTIC_SHARE + AGENTIC_SHARE * ratio
    _log.info("billed tokens, loop to single shot: %.2f; blended: %.2f", ratio, blended)
    assert 1.5 < ratio <= 4.0
    assert blended <= 2.1


async def test_tools_in_the_hands_of_the_model_bill_less_than_four_times_one_shot(
    demo: Application, server: ModelServer
) -> None:
    loop = await asked(demo, server, Arm("tools", Route.AGENTIC, "tools"), [row["tools"] for row in TRANSCRIPTS])
    single = await asked(demo, server, Arm("single", Route.STANDARD), [[row["single_shot"]] for row in TRANSCRIPTS])
    one_shot = fmean(one.billed_tokens for one in single)
    turns = fmean(one.llm_calls - 1 for one in loop)
    ratio = fmean(one.billed_tokens for one in loop) / one_shot
    with_definitions = ratio + turns * DEFINITIONS / one_shot
    _log.info("billed tokens, tools to single shot: %.2f, with definitions %.2f", ratio, with_definitions)
    assert 1.5 < ratio <= 3.0
    assert with_definitions <= 4.0
    assert 1.0 - AGENTIC_SHARE + AGENTIC_SHARE * with_definitions <= 2.1
