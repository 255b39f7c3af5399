"""Golden questions: what a file may hold, what passes, and that whatever goes wrong is a failed question."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from router.process.canary import MOST_QUESTIONS, GoldenQuestion, missing, read_golden, watching
from router.settings import BadSettings, CanarySettings
from router.telemetry.metrics import Metrics
from standard.domain.answer import Answer, AnswerSource, Citation, Decision, DecisionReason, Outcome, StopReason
from standard.domain.errors import DatabaseUnavailable
from standard.domain.question import Route
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from standard.domain.question import Question

PUMP = GoldenQuestion("pump", "Where is the spare bilge pump kept?", frozenset({"pump"}))
QUICK = CanarySettings(interval_seconds=0.01, timeout_seconds=0.1)


def answer(*documents: str, outcome: Outcome = Outcome.ANSWERED) -> Answer:
    return Answer(
        request_id="r",
        text="In the shed.",
        source=AnswerSource.EXTRACTIVE,
        outcome=outcome,
        stop_reason=StopReason.SUFFICIENT,
        route=Route.STANDARD,
        decision=Decision(Route.STANDARD, DecisionReason.EVIDENCE, 0.1, 0.5),
        citations=tuple(Citation(f"{each}#1", each, each, "", "shed", 0, 4, 0, 4) for each in documents),
    )


def golden_file(folder: Path, *rows: object) -> str:
    path = folder / "golden.jsonl"
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return str(path)


def test_a_file_of_an_evaluation_set_is_read_as_it_is(tmp_path: Path) -> None:
    row = {"id": "pump", "question": PUMP.text, "supporting_ids": ["pump"], "label": "simple"}
    assert read_golden(golden_file(tmp_path, row, "")) == (PUMP,)
    assert read_golden("") == ()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["not json"], "line 1"),
        (["[]"], "line 1: not an object"),
        ([{"question": " ", "supporting_ids": ["a"]}], "line 1: question"),
        ([{"question": "Where?", "supporting_ids": []}], "supporting_ids"),
        ([{"question": "Where?", "supporting_ids": "pump"}], "supporting_ids"),
        ([""], "has no question"),
        ([{"question": "Where?", "supporting_ids": ["a"]}] * (MOST_QUESTIONS + 1), "at most"),
    ],
)
def test_a_bad_file_stops_the_start_and_is_named(tmp_path: Path, rows: list[object], said: str) -> None:
    with pytest.raises(BadSettings, match=said) as caught:
        read_golden(golden_file(tmp_path, *rows))
    assert "POINTSMAN_CANARY__FILE" in caught.value.problems[0]


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="cannot be read"):
        read_golden(str(tmp_path / "nowhere.jsonl"))


def test_an_answer_passes_when_all_its_documents_are_cited() -> None:
    both = replace(PUMP, documents=frozenset({"pump", "tide"}))
    assert missing(answer("pump", "tide", "lantern"), both) == ""
    assert missing(answer("pump", outcome=Outcome.ANSWERED_WITH_CAVEAT), PUMP) == ""
    assert missing(answer("pump"), both) == "not cited: tide"
    assert missing(answer("pump", outcome=Outcome.UNANSWERABLE), PUMP) == "not answered: unanswerable"


async def test_the_metric_follows_the_rounds_and_no_failure_ends_them() -> None:
    metrics = Metrics()
    asked: list[Question] = []
    what: list[Callable[[], Answer]] = [lambda: answer("pump")]

    async def ask(question: Question) -> Answer:
        asked.append(question)
        return what[0]()

    def down() -> Answer:
        raise DatabaseUnavailable("away")

    def broken() -> Answer:
        raise KeyError("a bug")

    def value() -> float | None:
        return metrics.registry.get_sample_value("pointsman_canary_ok")

    async with watching(ask, (PUMP,), QUICK, metrics.canary_ok):
        await until(lambda: value() == 1.0)
        for failure in (down, broken, lambda: answer("tide")):
            what[0] = failure
            await until(lambda: value() == 0.0)
            what[0] = lambda: answer("pump")
            await until(lambda: value() == 1.0)
    assert len({question.request_id for question in asked}) == len(asked)
    assert asked[0].scope.collection == "default"


async def test_a_question_that_hangs_fails_and_the_watch_ends_with_its_block() -> None:
    metrics = Metrics()

    async def ask(_question: Question) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    async with watching(ask, (PUMP,), QUICK, metrics.canary_ok):
        await until(lambda: metrics.registry.get_sample_value("pointsman_canary_ok") == 0.0)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "canary"]


async def test_without_questions_nothing_is_asked() -> None:
    async with watching(lambda _: pytest.fail("asked"), (), QUICK, Metrics().canary_ok):
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "canary"]
