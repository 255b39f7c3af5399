"""Drift of the journal's questions against the shipped reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from classifier.artifact import SHIPPED, read_artifact
from classifier.drift import BINS, LEAST
from router.evaluation.drift import drift_report, evaluate_drift
from router.evaluation.report import prepare, write_report
from router.journal.question import kept_question
from router.journal.store import Journal
from standard.domain.answer import Decision, DecisionReason
from standard.domain.event import DecisionMade, Event
from standard.domain.passage import Scope
from standard.domain.question import Question, Route
from standard.domain.text import UntrustedText
from standard.embedding.factory import open_embedder

if TYPE_CHECKING:
    from pathlib import Path

    from standard.database.pool import Pool

VERSION = read_artifact(SHIPPED).version


async def journal_runs(pool: Pool, count: int, *, version: str = VERSION, start: int = 0) -> None:
    journal = Journal(pool, consent="text", owner="test")
    for number in range(start, start + count):
        decision = Decision(Route.STANDARD, DecisionReason.EVIDENCE, 0.02, 0.5, 0.1, 0.1, version)
        question = Question(text=UntrustedText(f"Who sang on record number {number}?"), scope=Scope("default", "music"))
        begun = await journal.begin("default", f"r{number}", "hash", kept_question(question, "text"), "")
        await journal.append(begun, [Event(1, DecisionMade(decision), "")], state="done")


async def test_questions_all_of_one_kind_are_seen_in_both_signals(pool: Pool, tmp_path: Path) -> None:
    await journal_runs(pool, LEAST)
    await journal_runs(pool, 3, version="another", start=LEAST)
    async with open_embedder() as embedder:
        results = await evaluate_drift(pool, embedder, consent="text", retention_days=30.0)
        without = await evaluate_drift(pool, embedder, consent="hash", retention_days=30.0)
        elsewhere = await evaluate_drift(pool, embedder, consent="text", retention_days=30.0, collection="elsewhere")
    assert results["runs"] == LEAST + 3
    assert results["left_out"] == {"another_model": 3}
    for signal, questions in (("probability", LEAST), ("embedding", LEAST + 3)):
        assert results["signals"][signal]["questions"] == questions
        assert results["signals"][signal]["psi"] > 0.25
        assert results["signals"][signal]["level"] == "look closely"
    assert len(results["probability_shares"]) == BINS
    assert without["signals"]["embedding"] == {"psi": None, "level": "unknown", "questions": 0}
    assert without["left_out"]["without_text"] == LEAST + 3
    assert elsewhere["runs"] == 0
    paths = write_report(prepare(tmp_path), drift_report(results), results)
    assert {path.name for path in paths} == {"report.md", "results.json", "probability.svg", "embedding.svg"}
    assert "look closely" in paths[0].read_text(encoding="utf-8")
