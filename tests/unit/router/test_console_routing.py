"""What the console counts: the histogram answers for any threshold what the decision would have said."""

from __future__ import annotations

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from router.decide import Circumstances, Policy, Signals, decide
from router.http.console_routing import EDGES, bin_of, summary
from router.journal.finished import FinishedRun
from router.routing.outcomes import Feedback, RunFacts
from standard.domain.answer import Answer, AnswerSource, Decision, DecisionReason, Outcome, StopReason
from standard.domain.question import Route

PROBABILITIES = st.one_of(st.floats(0.0, 1.0), st.sampled_from(EDGES))


def run(probability: float | None, reason: DecisionReason, outcome: Outcome | None = Outcome.ANSWERED) -> FinishedRun:
    decision = Decision(Route.STANDARD, reason, probability, 0.5)
    answer = Answer("r", "It is.", AnswerSource.GENERATED, outcome, StopReason.SUFFICIENT, Route.STANDARD, decision)
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return FinishedRun(1, "default", "r", at, None, RunFacts(decision, answer), Feedback())


@given(probabilities=st.lists(PROBABILITIES, max_size=40), threshold=st.sampled_from(range(101)))
def test_the_bins_from_a_threshold_on_are_what_it_would_have_sent_to_the_agentic_route(
    probabilities: list[float], threshold: int
) -> None:
    counted = summary(run(each, DecisionReason.EVIDENCE) for each in probabilities)
    policy = Policy(threshold=threshold / 100)
    sent = [decide(Signals(combined=each), Circumstances(priced=False), policy).route for each in probabilities]
    assert sum(counted["bins"][threshold:]) == sent.count(Route.AGENTIC)
    assert counted["counted"] == len(probabilities)


@given(PROBABILITIES)
def test_a_probability_lies_in_the_bin_of_the_last_edge_below_it(probability: float) -> None:
    found = bin_of(probability)
    assert EDGES[found] <= probability
    assert found == 100 or probability < EDGES[found + 1]


def test_forced_silent_and_dry_runs_are_not_among_the_counted() -> None:
    counted = summary(
        [
            run(0.9, DecisionReason.FORCED),
            run(None, DecisionReason.FALLBACK),
            run(0.9, DecisionReason.EVIDENCE, outcome=None),
            run(0.2, DecisionReason.EVIDENCE),
        ]
    )
    assert (counted["counted"], counted["forced"], counted["without_probability"]) == (1, 1, 1)
    assert sum(counted["verdicts"].values()) == 3


def test_nothing_counted_says_so() -> None:
    counted = summary([])
    assert (counted["counted"], counted["oldest"], sum(counted["bins"])) == (0, None, 0)
