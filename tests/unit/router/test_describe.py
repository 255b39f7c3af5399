"""The line of a step names what there is to name, and nothing else."""

from __future__ import annotations

import pytest

from router.describe import describe
from standard.domain.event import QueryIssued


@pytest.mark.parametrize("action", ["link", "explore", "read"])
def test_a_step_from_a_passage_without_a_title_says_so(action: str) -> None:
    assert describe(QueryIssued(1, action, " ", "")).endswith("an untitled passage")


def test_a_step_with_a_title_names_it() -> None:
    assert describe(QueryIssued(1, "explore", "Loans", "")) == "Explore Loans"
