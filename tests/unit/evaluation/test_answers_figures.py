"""From records to figures, failures and the curve of abstentions; the ledger of a measurement."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.evaluation.answers.failures import REASONS, counted, reason_of
from router.evaluation.answers.figures import abstention_curve, figures_of
from router.evaluation.answers.record import ASKED, SINGLE_SHOT, Ledger, Record, budget_arm, record_of
from router.evaluation.answers.report import answers_report
from router.evaluation.report import markdown
from standard.domain.errors import FailedPrecondition

SUPPORT = (("a",), ("b", "b2"))


def record(**changes: Any) -> Record:  # noqa: ANN401 - any field
    given_ = {
        "set": "places",
        "id": "q",
        "arm": ASKED,
        "answerable": True,
        "route": "agentic",
        "outcome": "answered",
        "stop_reason": "no_progress",
        "support": SUPPORT,
        "acquired": ("x", "a", "a", "b2"),
        "shown": 4,
        "cited": ("a", "x"),
        "holds_answer": True,
        "says_answer": True,
        "em": 0.0,
        "f1": 0.5,
        "steps": 2,
        "evidence": 0.9,
        "sufficiency": 0.7,
    }
    return Record(**{**given_, **changes})


def test_a_stand_in_counts_as_the_document_itself() -> None:
    figures = figures_of([record()], ())
    assert figures["recall@10"] == 1.0
    assert figures["all@10"] == 1.0
    assert figures["citation_precision"] == 0.5
    assert figures["citation_recall"] == 0.5


def test_ours_and_single_shot_are_compared_on_the_same_questions_at_equal_passages() -> None:
    alone = record(arm=SINGLE_SHOT, route="standard", acquired=("x", "y", "z", "w", "a", "b"), shown=5, f1=0.25)
    unpaired = record(id="other", f1=1.0, acquired=("x",), shown=1)
    figures = figures_of([record(), alone, unpaired], ())
    assert figures["difference"]["f1"]["mean"] == 0.25
    assert figures["single_shot"]["recall@10"] == 1.0
    assert figures["equal_passages"]["5"]["recall"] == 1.0
    assert figures["equal_passages"]["5"]["single_shot"] == 0.5
    assert figures["equal_passages"]["as_acquired"]["single_shot"] == 0.0
    assert figures["questions"] == 2


def test_an_interval_holds_the_mean_and_a_metric_that_no_question_has_is_none() -> None:
    records = [record(id=str(n), f1=n / 10, em=None) for n in range(10)]
    alone = [record(id=str(n), arm=SINGLE_SHOT, f1=0.2, em=None) for n in range(10)]
    found = figures_of([*records, *alone], ())["difference"]
    assert found["em"] is None
    assert found["f1"]["mean"] == pytest.approx(0.25)
    assert found["f1"]["low"] < 0.25 < found["f1"]["high"]
    assert 0.2 < found["f1"]["high"] - found["f1"]["low"] < 0.5  # the standard error is 0.09


def test_each_budget_has_figures_of_its_own_and_unasked_ones_have_none() -> None:
    figures = figures_of([record(), record(arm=budget_arm(1), acquired=("x",), shown=1)], (1, 8))
    assert set(figures["budgets"]) == {"1"}
    assert figures["budgets"]["1"]["recall@10"] == 0.0
    assert figures["recall@10"] == 1.0


def test_unanswerable_questions_bear_on_abstentions_alone() -> None:
    abstained = record(id="u", answerable=False, outcome="unanswerable", support=(), acquired=(), says_answer=None)
    figures = figures_of([record(), abstained], ())
    assert figures["questions"] == 1
    assert (figures["abstained_answerable"], figures["abstained_unanswerable"]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "right"),
        ({"says_answer": False}, "answer"),
        ({"says_answer": False, "holds_answer": None}, "answer"),
        ({"says_answer": False, "holds_answer": False}, "wrong_chunks"),
        ({"says_answer": False, "shown": 2}, "missing_hop"),
        ({"says_answer": False, "shown": 2, "guards": {"query_similarity": 1}}, "guard"),
        ({"says_answer": False, "shown": 2, "guards": {"x": 1}, "stop_reason": "step_budget"}, "budget"),
        ({"says_answer": None}, "right"),
        ({"says_answer": None, "outcome": "unanswerable"}, "answer"),
    ],
)
def test_a_miss_has_the_first_reason_that_applies(changes: dict[str, Any], reason: str) -> None:
    assert reason_of(record(**changes)) == reason


@given(
    st.lists(
        st.tuples(st.booleans(), st.booleans(), st.integers(0, 4), st.sampled_from(["no_progress", "step_budget"]))
    )
)
def test_reasons_add_up_to_the_questions(rows: list[tuple[bool, bool, int, str]]) -> None:
    records = [
        record(id=str(n), says_answer=says, holds_answer=holds, shown=shown, stop_reason=stop)
        for n, (says, holds, shown, stop) in enumerate(rows)
    ]
    counts = counted(records)
    assert tuple(counts) == REASONS
    assert sum(counts.values()) == len(records)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=150), st.lists(st.floats(0, 1), min_size=1, max_size=150))
def test_the_curve_rises_from_nothing_to_everything(yes: list[float], no: list[float]) -> None:
    found = abstention_curve(
        [record(evidence=value) for value in yes], [record(evidence=value) for value in no], lambda one: one.evidence
    )
    points = [(point["false_abstentions"], point["abstentions"]) for point in found["curve"]]
    assert points == sorted(points)
    assert points[0] == (0.0, 0.0)
    assert points[-1] == (1.0, 1.0)
    assert len(points) <= 101
    assert 0.0 <= found["auc"] <= 1.0


def test_a_signal_that_tells_them_apart_catches_all() -> None:
    yes = [record(evidence=0.5 + n / 100) for n in range(20)]
    no = [record(evidence=n / 100) for n in range(20)]
    found = abstention_curve(yes, no, lambda one: one.evidence)
    assert (found["auc"], found["abstained"]) == (1.0, 1.0)
    assert abstention_curve(yes, [], lambda one: one.evidence)["auc"] is None


def test_a_measurement_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    with Ledger(tmp_path, {"seed": 1}) as ledger:
        ledger.add(record(id="one"))
        ledger.add(record(id="two"))
    file = tmp_path / "answers.jsonl"
    file.write_text(file.read_text()[:-40])
    with Ledger(tmp_path, {"seed": 1}) as ledger:
        assert [kept.id for kept in ledger.records.values()] == ["one"]
        ledger.add(record(id="two"))
    with Ledger(tmp_path, {"seed": 1}) as ledger:
        assert list(ledger.records.values()) == [record(id="one"), record(id="two")]


def test_another_measurement_is_not_gone_on_with(tmp_path: Path) -> None:
    with Ledger(tmp_path, {"seed": 1}):
        pass
    with (
        pytest.raises(FailedPrecondition, match=r"another measurement \(seed: 1 there, 2 here\)"),
        Ledger(tmp_path, {"seed": 2}),
    ):
        pass


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    with Ledger(tmp_path, {}) as ledger:
        ledger.add(record())
    file = tmp_path / "answers.jsonl"
    file.write_text(file.read_text().replace('"set"', '"sets"') + json.dumps(asdict(record())) + "\n")
    with pytest.raises(FailedPrecondition, match=r"answers.jsonl:2 is no record"), Ledger(tmp_path, {}):
        pass


def test_a_record_survives_its_json_form() -> None:
    whole = record(actions={"search": 2}, guards={"dedup": 1})
    assert record_of(json.loads(json.dumps(asdict(whole)))) == whole


def test_the_report_shows_every_part_that_was_measured() -> None:
    records = [
        record(),
        record(arm=SINGLE_SHOT, route="standard", says_answer=False),
        record(arm=budget_arm(1)),
        record(id="u", answerable=False, support=(), evidence=0.1),
        record(id="w", says_answer=False, shown=1),
        record(id="w", arm=SINGLE_SHOT),
    ]
    report = {"measured": {"route": "agentic"}, "sets": {"places": figures_of(records, (1,))}}
    text = markdown(answers_report(report, records))
    for heading in ("Quality", "Cost", "single-shot", "equal numbers", "step budget", "without an answer", "Failures"):
        assert heading in text
    assert "missing\\_hop: places/w" in text
    assert json.dumps(report, allow_nan=False)
