"""Fusion of ranked lists."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from standard.retrieval.fusion import Leg, convex_fusion, lift, reciprocal_rank_fusion

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy

keys = st.lists(st.integers(0, 60), unique=True, max_size=40)
finite = st.floats(-1e6, 1e6, allow_nan=False)


@st.composite
def legs(draw: st.DrawFn) -> Leg[int]:
    held = draw(keys)
    scores = sorted(draw(st.lists(finite, min_size=len(held), max_size=len(held))), reverse=True)
    return Leg(held, scores, draw(st.sampled_from([None, 0.0])))


pairs = st.tuples(legs(), legs())
weights = st.floats(0.0, 1.0).map(lambda weight: [weight, 1.0 - weight])


@patient
@given(pairs, weights)
def test_every_key_appears_once_best_first_and_within_bounds(
    both: tuple[Leg[int], Leg[int]], shares: list[float]
) -> None:
    for fused in (convex_fusion(both, shares), reciprocal_rank_fusion(both, weights=shares)):
        assert sorted(item.key for item in fused) == sorted(set(both[0].keys) | set(both[1].keys))
        scores = [item.score for item in fused]
        assert scores == sorted(scores, reverse=True)
        assert all(0.0 <= score <= 1.0 + 1e-9 for score in scores)


@patient
@given(legs())
def test_all_the_weight_on_one_leg_keeps_its_order(leg: Leg[int]) -> None:
    other = Leg(list(range(100, 110)), [float(10 - n) for n in range(10)])
    fused = [item.key for item in convex_fusion([leg, other], [1.0, 0.0]) if item.key < 100]
    assert fused == list(leg.keys)


@patient
@given(legs(), st.floats(0.01, 100.0), st.floats(-100.0, 100.0))
def test_the_unit_of_a_leg_does_not_matter(leg: Leg[int], scale: float, shift: float) -> None:
    cut = Leg(leg.keys, [round(score) for score in leg.scores])
    moved = Leg(leg.keys, [score * scale + shift for score in cut.scores])
    other = Leg([1, 2, 3], [3.0, 2.0, 1.0])
    before = {item.key: item.score for item in convex_fusion([cut, other])}
    after = {item.key: item.score for item in convex_fusion([moved, other])}
    assert after == pytest.approx(before, abs=1e-6)


@patient
@given(pairs)
def test_a_key_that_is_better_in_both_legs_is_better_in_the_end(both: tuple[Leg[int], Leg[int]]) -> None:
    ranks = [{key: rank for rank, key in enumerate(leg.keys)} for leg in both]
    place = {item.key: rank for rank, item in enumerate(reciprocal_rank_fusion(both))}
    shared = set(ranks[0]) & set(ranks[1])
    for one in shared:
        for other in shared:
            if ranks[0][one] < ranks[0][other] and ranks[1][one] < ranks[1][other]:
                assert place[one] < place[other]


def test_reciprocal_rank_fusion_adds_up_reciprocal_ranks() -> None:
    fused = reciprocal_rank_fusion([Leg(["a", "b"], [9.0, 8.0]), Leg(["b", "c"], [0.2, 0.1])], k=60)
    best = 1 / 61
    expected = {"b": (1 / 62 + 1 / 61) / 2 / best, "a": 1 / 2, "c": (1 / 62) / 2 / best}
    assert {item.key: item.score for item in fused} == pytest.approx(expected)
    assert [item.key for item in fused] == ["b", "a", "c"]


def test_the_only_chunk_with_the_rare_word_gets_all_of_the_lexical_share() -> None:
    dense = Leg(["a", "b", "c"], [0.9, 0.8, 0.7])
    fused = {item.key: item.score for item in convex_fusion([dense, Leg(["c"], [7.3], 0.0)], [0.4, 0.6])}
    assert fused == pytest.approx({"a": 0.4, "b": 0.2, "c": 0.6})


def test_without_a_leg_the_other_decides() -> None:
    leg = Leg(["a", "b"], [2.0, 1.0])
    assert [item.key for item in convex_fusion([leg, Leg([], [])])] == ["a", "b"]
    assert convex_fusion([Leg([], []), Leg([], [])]) == []


@pytest.mark.parametrize("wrong", [[1.0], [0.0, 0.0], [-1.0, 2.0]])
def test_weights_that_make_no_sense_are_refused(wrong: list[float]) -> None:
    leg = Leg(["a"], [1.0])
    with pytest.raises(ValueError, match="weights"):
        convex_fusion([leg, leg], wrong)


def test_a_leg_needs_a_score_for_each_key() -> None:
    with pytest.raises(ValueError, match="2 keys but 1 scores"):
        Leg(["a", "b"], [1.0])


@patient
@given(legs(), st.frozensets(st.integers(0, 60)))
def test_a_leg_without_some_keys_keeps_the_rest_in_order(leg: Leg[int], gone: frozenset[int]) -> None:
    rest = leg.without(gone)
    assert list(rest.keys) == [key for key in leg.keys if key not in gone]
    held = dict(zip(leg.keys, leg.scores, strict=True))
    assert [held[key] for key in rest.keys] == list(rest.scores)


@patient
@given(pairs, st.frozensets(st.integers(0, 80), max_size=5), st.floats(0.0, 2.0))
def test_lifting_some_keys_keeps_the_order_of_the_others(
    both: tuple[Leg[int], Leg[int]], favoured: frozenset[int], bonus: float
) -> None:
    fused = convex_fusion(both)
    lifted = lift(fused, favoured, bonus)
    others = [item.key for item in fused if item.key not in favoured]
    assert [item.key for item in lifted if item.key not in favoured] == others
    assert all(0.0 <= item.score <= 1.0 for item in lifted)
    if bonus > 0:
        assert favoured <= {item.key for item in lifted}
