"""Figures of rankings."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.evaluation.metrics import METRICS, distinct, mean, paired_bootstrap, score

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


def support(*documents: str) -> list[frozenset[str]]:
    return [frozenset({document}) for document in documents]


def test_a_document_stands_where_its_best_chunk_does() -> None:
    assert distinct(["a", "b", "a", "c", "b"]) == ["a", "b", "c"]
    assert len(distinct(str(number) for number in range(100))) == 10


def test_recall_counts_supports_and_all_wants_every_one() -> None:
    ranked = ["x", "a", "y", "z", "w", "b"]
    assert score(ranked, support("a", "b")) == {"recall@5": 0.5, "all@5": 0.0, "recall@10": 1.0, "all@10": 1.0}


def test_a_stand_in_serves_as_well() -> None:
    assert score(["b"], [frozenset({"a", "b"})])["all@5"] == 1.0


@patient
@given(st.lists(st.sampled_from("abcdefghijklmnop"), unique=True), st.sets(st.sampled_from("abcdefgh"), min_size=1))
def test_figures_are_fractions_and_more_is_never_less(ranked: list[str], wanted: set[str]) -> None:
    figures = score(ranked, support(*sorted(wanted)))
    assert set(figures) == set(METRICS)
    assert all(0.0 <= value <= 1.0 for value in figures.values())
    assert figures["recall@5"] <= figures["recall@10"]
    assert all(figures[f"all@{k}"] <= figures[f"recall@{k}"] for k in (5, 10))


def test_means_are_over_questions() -> None:
    figures = [score(["a"], support("a")), score(["b"], support("a"))]
    assert mean(figures) == dict.fromkeys(METRICS, 0.5)


def test_the_interval_holds_the_mean_and_shrinks_to_nothing_without_spread() -> None:
    wide = paired_bootstrap([1.0, 0.0, 1.0, 1.0] * 20, [0.0, 0.0, 1.0, 0.0] * 20, resamples=500)
    assert wide.mean == pytest.approx(0.5)
    assert wide.low < wide.mean < wide.high
    assert wide.low > 0.3
    flat = paired_bootstrap([0.7] * 10, [0.2] * 10, resamples=100)
    assert flat.low == pytest.approx(0.5)
    assert flat.high == pytest.approx(0.5)
    assert wide == paired_bootstrap([1.0, 0.0, 1.0, 1.0] * 20, [0.0, 0.0, 1.0, 0.0] * 20, resamples=500)
