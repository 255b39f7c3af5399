"""What a run's end and its feedback say of the choice of its route, and which labels come of it."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.labels import read_labels
from router.cli.label import moment, write_labels
from router.journal.finished import FinishedRun
from router.journal.question import kept_question
from router.routing.labels import LabelMaker
from router.routing.outcomes import (
    Feedback,
    RunFacts,
    Verdict,
    facts_of,
    needed_route,
    signs_of,
    verdict,
    verdict_of_feedback,
)
from standard.domain.answer import Answer, AnswerSource, Decision, DecisionReason, Outcome, StopReason
from standard.domain.errors import InvalidInput
from standard.domain.event import Completed, DecisionMade, Escalated, SufficiencyJudged
from standard.domain.passage import Scope
from standard.domain.question import Question, Route, Turn
from standard.domain.text import UntrustedText

if TYPE_CHECKING:
    from pathlib import Path

    from router.journal.codec import Consent

NOW = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
NONE, GOOD, BAD = Feedback(), Feedback(rating=1.0), Feedback(rating=-0.5)


def facts(
    chosen: Route,
    *,
    outcome: Outcome | None = Outcome.ANSWERED,
    stop: StopReason = StopReason.SUFFICIENT,
    first: bool | None = None,
    escalation: str = "",
    reason: DecisionReason = DecisionReason.EVIDENCE,
) -> RunFacts:
    decision = Decision(chosen, reason, 0.4, 0.5)
    final = Route.AGENTIC if escalation else chosen
    answer = Answer("r", "text", AnswerSource.EXTRACTIVE, outcome, stop, final, decision, steps=2)
    return RunFacts(decision, answer, first, escalation)


@pytest.mark.parametrize(
    ("run", "feedback", "expected"),
    [
        (facts(Route.STANDARD), NONE, Verdict.RIGHT),
        (facts(Route.STANDARD), GOOD, Verdict.RIGHT),
        (facts(Route.STANDARD), BAD, Verdict.UNDER),
        (facts(Route.STANDARD, escalation="insufficient"), NONE, Verdict.UNDER),
        (facts(Route.STANDARD, escalation="insufficient", first=True), NONE, Verdict.UNDER),
        (facts(Route.STANDARD, outcome=Outcome.UNANSWERABLE, stop=StopReason.NO_EVIDENCE), NONE, Verdict.UNDER),
        (facts(Route.STANDARD, outcome=Outcome.ANSWERED_WITH_CAVEAT, stop=StopReason.TIME_BUDGET), NONE, None),
        (facts(Route.AGENTIC, first=True), NONE, Verdict.OVER),
        (facts(Route.AGENTIC, first=True), BAD, None),
        (facts(Route.AGENTIC, first=False), NONE, Verdict.RIGHT),
        (facts(Route.AGENTIC, first=False, outcome=Outcome.UNANSWERABLE), NONE, None),
        (facts(Route.AGENTIC, first=False), Feedback(correct_route=Route.STANDARD), Verdict.OVER),
        (facts(Route.AGENTIC, first=True), Feedback(correct_route=Route.AGENTIC), Verdict.RIGHT),
        (facts(Route.STANDARD), Feedback(1.0, Route.AGENTIC), Verdict.UNDER),
        (facts(Route.AGENTIC, first=True, reason=DecisionReason.FORCED), NONE, None),
        (facts(Route.STANDARD, outcome=None), Feedback(correct_route=Route.AGENTIC), None),
        (RunFacts(), Feedback(correct_route=Route.AGENTIC), None),
    ],
)
def test_each_end_has_its_verdict(run: RunFacts, feedback: Feedback, expected: Verdict | None) -> None:
    assert verdict(run, feedback) is expected


def test_facts_are_read_from_the_events_in_order() -> None:
    run = facts(Route.STANDARD, escalation="insufficient")
    assert run.decision is not None
    assert run.answer is not None
    found = facts_of(
        [
            DecisionMade(run.decision),
            Escalated(Route.STANDARD, Route.AGENTIC, "insufficient"),
            SufficiencyJudged(1, 0.3, sufficient=False),
            SufficiencyJudged(2, 0.9, sufficient=True),
            Completed(run.answer),
        ]
    )
    assert found == RunFacts(run.decision, run.answer, sufficient_at_first=False, escalation="insufficient")


def test_feedback_counts_only_where_it_turns_the_verdict() -> None:
    run = facts(Route.STANDARD)
    assert verdict_of_feedback(run, Feedback(), GOOD) is None  # it was right at its end, and still is
    assert verdict_of_feedback(run, Feedback(), BAD) is Verdict.UNDER
    assert verdict_of_feedback(run, BAD, BAD) is None
    assert verdict_of_feedback(run, BAD, GOOD) is Verdict.RIGHT


any_facts = st.builds(
    facts,
    st.sampled_from(Route),
    outcome=st.sampled_from([None, *Outcome]),
    stop=st.sampled_from(StopReason),
    first=st.sampled_from([None, True, False]),
    escalation=st.sampled_from(["", "insufficient"]),
    reason=st.sampled_from(DecisionReason),
)
any_feedback = st.builds(
    Feedback, st.none() | st.floats(min_value=-1, max_value=1), st.none() | st.sampled_from(list(Route))
)


@given(any_facts, any_feedback)
def test_what_somebody_says_was_right_outweighs_every_sign(run: RunFacts, feedback: Feedback) -> None:
    needed = needed_route(signs_of(run, feedback))
    if feedback.correct_route is not None:
        assert needed is feedback.correct_route
    found = verdict(run, feedback)
    if found is Verdict.OVER:
        assert run.chosen is Route.AGENTIC
        assert needed is Route.STANDARD
    if found is Verdict.UNDER:
        assert run.chosen is Route.STANDARD
        assert needed is Route.AGENTIC


def run_of(
    number: int,
    text: str,
    run: RunFacts,
    feedback: Feedback = NONE,
    *,
    consent: Consent = "text",
    history: tuple[str, ...] = (),
) -> FinishedRun:
    turns = tuple(Turn("user", UntrustedText(said)) for said in history)
    question = Question(text=UntrustedText(text), scope=Scope(tenant="default", collection="docs"), history=turns)
    return FinishedRun(number, "default", f"r{number}", NOW, kept_question(question, consent), run, feedback)


def made(*runs: FinishedRun, consent: Consent = "text", most: int = 100) -> LabelMaker:
    maker = LabelMaker(consent, most)
    for run in runs:
        maker.take(run)
    return maker


def test_runs_become_labels_that_training_reads(tmp_path: Path) -> None:
    maker = made(
        run_of(5, "Where is the pump?", facts(Route.STANDARD), GOOD),
        run_of(4, "Who signs for what the deputy lends?", facts(Route.STANDARD, escalation="insufficient")),
        run_of(3, "When is high water?", facts(Route.AGENTIC, first=True)),
        run_of(2, "Which wharf has the older lantern?", facts(Route.AGENTIC, first=False)),
        run_of(1, "Where is the lantern lit?", facts(Route.STANDARD)),
    )
    report = maker.report()
    assert report["labels"] == {"total": 4, "complex": 2, "simple": 2}
    assert report["left_out"] == {"unconfirmed": 1}
    assert report["verdicts"] == {"right": 3, "over": 1, "under": 1, "none": 0}
    assert report["because"] == {
        "escalated": 1,
        "rated_right": 1,
        "sufficient_at_first_step": 1,
        "took_further_steps": 1,
    }
    path = tmp_path / "labels.jsonl"
    write_labels(path, maker.labels())
    assert path.stat().st_mode & 0o777 == 0o600
    read = read_labels(path)
    assert dict(zip(read.questions, read.complex, strict=True)) == {
        "Where is the pump?": False,
        "Who signs for what the deputy lends?": True,
        "When is high water?": False,
        "Which wharf has the older lantern?": True,
    }
    assert read.refused_count == 0
    line = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert (line["request_id"], line["collection"], line["probability"], line["steps"]) == ("r5", "docs", 0.4, 2)


def test_contradictions_are_shown_and_left_out() -> None:
    maker = made(
        run_of(4, "Where is the pump?", facts(Route.STANDARD), GOOD),
        run_of(3, "where is the  PUMP", facts(Route.STANDARD), BAD),
        run_of(2, "Where is the pump?", facts(Route.STANDARD), GOOD),
        run_of(1, "When is high water?", facts(Route.AGENTIC, first=True), BAD),
    )
    conflicts = maker.report()["conflicts"]
    assert maker.labels() == []
    assert (conflicts["questions"], conflicts["runs"]) == (2, 4)
    assert {told["request_id"] for runs in conflicts["shown"] for told in runs} == {"r1", "r2", "r3", "r4"}
    assert conflicts["shown"][1][0]["signs"] == [
        {"needed": "standard", "source": "sufficient_at_first_step"},
        {"needed": "agentic", "source": "rated_wrong"},
    ]


def test_a_follow_up_is_labelled_as_the_text_model_reads_it() -> None:
    maker = made(
        run_of(1, "And at Cold Haven?", facts(Route.STANDARD), GOOD, history=("When is high water at Alder?",))
    )
    assert maker.labels()[0].question == "When is high water at Alder. And at Cold Haven?"


@pytest.mark.parametrize("consent", ["hash", "nothing"])
def test_without_consent_to_the_text_there_is_no_label_and_that_is_said(consent: Consent) -> None:
    asked_without = made(run_of(1, "Where is the pump?", facts(Route.STANDARD), GOOD, consent=consent))
    assert asked_without.labels() == []
    assert asked_without.report()["left_out"] == {"without_text": 1}
    assert asked_without.report()["verdicts"]["right"] == 1
    withdrawn = made(run_of(1, "Where is the pump?", facts(Route.STANDARD), GOOD), consent=consent)
    assert withdrawn.labels() == []
    assert consent in withdrawn.report()["warnings"][0]
    assert "pump" not in json.dumps(withdrawn.report())


def test_what_no_route_could_answer_and_other_languages_teach_nothing() -> None:
    nothing = facts(Route.STANDARD, outcome=Outcome.UNANSWERABLE, escalation="insufficient")
    maker = made(
        run_of(3, "Who was mayor in 1650?", nothing),
        run_of(2, "Wo liegt die Pumpe und wer hat den Schlüssel?", facts(Route.STANDARD), GOOD),
        run_of(1, "Who keeps the key?", nothing, Feedback(correct_route=Route.AGENTIC)),
    )
    assert [label.question for label in maker.labels()] == ["Who keeps the key?"]
    assert maker.report()["left_out"] == {"unanswerable": 1, "other_language": 1}


def test_memory_is_bounded_and_the_newest_are_kept() -> None:
    runs = [run_of(9 - n, f"Where is pump number {n}?", facts(Route.STANDARD), GOOD) for n in range(5)]
    maker = made(*runs, most=2)
    assert [label.about["request_id"] for label in maker.labels()] == ["r9", "r8"]
    assert maker.report()["left_out"] == {"beyond_the_bound": 3}


@given(st.lists(st.tuples(st.sampled_from(["a b c d e?", "f g h i j?", "k l m n o?"]), any_facts, any_feedback)))
def test_every_run_is_accounted_for(rows: list[tuple[str, RunFacts, Feedback]]) -> None:
    maker = made(*(run_of(number, *row) for number, row in enumerate(rows)), most=2)
    report: dict[str, Any] = maker.report()
    assert sum(report["verdicts"].values()) == report["runs"] == len(rows)
    told = report["labels"]["total"], report["repeats"], report["conflicts"]["runs"], *report["left_out"].values()
    assert sum(told) == len(rows)


def test_moments_are_dates_times_and_spans() -> None:
    assert moment("") is None
    assert moment("7d", NOW) == NOW - dt.timedelta(days=7)
    assert moment("1.5h", NOW) == NOW - dt.timedelta(hours=1.5)
    assert moment("2026-11-30") == dt.datetime(2026, 11, 30, tzinfo=dt.UTC)
    assert moment("2026-11-30T08:00+02:00") == dt.datetime(2026, 11, 30, 6, tzinfo=dt.UTC)
    for bad in ("yesterday", "d", "9" * 20 + "d", "2026-13-01"):
        with pytest.raises(InvalidInput, match="since"):
            moment(bad)
