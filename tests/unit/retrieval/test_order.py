"""Order of passages in the context."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from standard.retrieval.order import best_at_edges

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


def test_the_best_stand_at_the_edges() -> None:
    assert best_at_edges([0, 1, 2, 3, 4]) == (0, 2, 4, 3, 1)
    assert best_at_edges([0, 1, 2, 3]) == (0, 2, 3, 1)


@patient
@given(st.lists(st.integers()))
def test_nothing_is_lost_and_the_further_in_the_worse(items: list[int]) -> None:
    ranks = list(range(len(items)))
    placed = best_at_edges(ranks)
    assert sorted(placed) == ranks
    by_edge = sorted(range(len(placed)), key=lambda place: (min(place, len(placed) - 1 - place), place))
    assert [placed[place] for place in by_edge] == ranks
