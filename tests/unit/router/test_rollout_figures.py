"""Figures of a rollout from runs, and what a simulation expects."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.decide import Policy, Rollout, Signals
from router.rollout.figures import BUCKETS, Arm, Pairs, bucket_of, quantile, unpaired_lift
from router.rollout.report import Part
from router.rollout.simulate import Simulation, Takes, takes_of
from standard.domain.question import Route


def aside(*, answered: bool, word_f1: float = 1.0, overlap: float | None = 1.0, seconds: float = 2.0) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.01}
    return {
        "answered": answered, "word_f1": word_f1, "document_overlap": overlap, "seconds": seconds, "usage": usage,
    }  # fmt: skip


@given(st.floats(0.0, 1.0))
def test_every_probability_has_a_bucket_that_holds_it(probability: float) -> None:
    bucket = bucket_of(probability)
    assert 0 <= bucket < BUCKETS
    assert bucket / BUCKETS <= probability + 1e-9
    assert probability <= (bucket + 1) / BUCKETS


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_quantile_is_one_of_the_values_and_leaves_its_share_below(values: list[float], share: float) -> None:
    found = quantile(array("d", values), share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9


def test_pairs_say_how_often_each_route_alone_answered() -> None:
    pairs = Pairs()
    for standard, agentic in [(True, True), (True, True), (False, True), (False, True), (True, False), (False, False)]:
        pairs.take(standard, aside(answered=agentic, word_f1=0.5))
    pairs.take(True, {"error": "LlmUnavailable", "seconds": 1.0})
    view = pairs.view()
    assert (view["pairs"], view["failed"], view["agentic_alone"], view["standard_alone"]) == (6, 1, 2, 1)
    assert view["agreement"] == pytest.approx(0.5)
    assert view["lift"] == pytest.approx(1 / 6)
    assert view["lift_low"] < view["lift"] < view["lift_high"]
    assert (view["word_f1"], view["document_overlap"], view["aside"]["usd_mean"]) == (0.5, 1.0, pytest.approx(0.01))


def test_without_pairs_there_is_no_lift() -> None:
    view = Pairs().view()
    assert (view["lift"], view["lift_low"], view["agreement"], view["word_f1"]) == (None, None, None, None)
    assert unpaired_lift(Arm(), Arm()) is None


def filled(runs: int, answered: int, seconds: float, usd: float) -> Arm:
    arm = Arm()
    for number in range(runs):
        arm.take(answered=number < answered, seconds=seconds, usd=usd, tokens=1)
    return arm


def test_a_canarys_lift_is_the_difference_of_its_arms() -> None:
    found = unpaired_lift(filled(100, 90, 3.0, 0.02), filled(100, 70, 1.0, 0.0))
    assert found is not None
    assert found["lift"] == pytest.approx(0.2)
    assert 0.09 < found["lift_low"] < 0.11
    assert (found["seconds_p50_more"], found["usd_mean_more"]) == (pytest.approx(2.0), pytest.approx(0.02))


def test_asides_stand_for_an_agentic_route_that_never_answered() -> None:
    part = Part()
    part.arms["standard"] = filled(4, 4, 1.0, 0.0)
    part.arms["held_back"] = filled(4, 4, 2.0, 0.0)
    part.pairs.take(True, aside(answered=True, seconds=6.0))
    takes = takes_of(part)
    assert (takes[Route.STANDARD].seconds, takes[Route.AGENTIC].seconds) == (1.5, 6.0)
    assert (takes[Route.STANDARD].source, takes[Route.AGENTIC].source) == ("journal", "aside")
    assert takes_of(Part())[Route.AGENTIC] == Takes(None, None, None)


TAKES = {Route.STANDARD: Takes(1.0, 0.001, "option"), Route.AGENTIC: Takes(5.0, 0.011, "option")}


def test_a_simulation_mixes_what_each_route_takes_by_its_share() -> None:
    simulation = Simulation(Policy(threshold=0.5, rollout=Rollout.OFF, kill_switch=True), TAKES)
    for probability in (0.1, 0.2, 0.3, 0.9):
        simulation.take(Signals(text=probability, combined=probability), 0.01)
    view = simulation.view()
    assert (view["agentic_share"], view["capped_share"]) == (0.25, 0.25)
    assert view["expected"] == {"seconds_mean": pytest.approx(2.0), "usd_per_1000": pytest.approx(3.5)}
    at = {each["threshold"]: each["agentic_share"] for each in view["thresholds"]}
    assert (at[0.05], at[0.25], at[0.95]) == (1.0, 0.5, 0.0)


def test_a_cap_bounds_what_is_expected() -> None:
    simulation = Simulation(Policy(threshold=0.0, max_agentic_share=0.1), TAKES)
    simulation.take(Signals(text=0.9, combined=0.9), 0.01)
    view = simulation.view()
    assert (view["agentic_share"], view["capped_share"]) == (1.0, 0.1)
    assert view["expected"]["seconds_mean"] == pytest.approx(1.4)


def test_questions_without_a_probability_go_the_safe_way_at_every_threshold() -> None:
    simulation = Simulation(Policy(threshold=0.5, safe_route=Route.AGENTIC), TAKES)
    simulation.take(Signals(), 0.01)
    simulation.take(Signals(text=0.4, combined=0.4, knows_language=False), 0.01)
    view = simulation.view()
    assert view["by_safe_route"] == {"fallback": 1, "language": 1}
    assert {each["agentic_share"] for each in view["thresholds"]} == {1.0}


def test_what_nobody_knows_is_not_guessed() -> None:
    unknown = {Route.STANDARD: TAKES[Route.STANDARD], Route.AGENTIC: Takes(None, None, None)}
    simulation = Simulation(Policy(threshold=0.5), unknown)
    simulation.take(Signals(text=0.9, combined=0.9), 0.01)
    assert simulation.view()["expected"] == {"seconds_mean": None, "usd_per_1000": None}
