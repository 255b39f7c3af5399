"""The breaker and the retry budget, over any course of events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from standard.resilience import Breaker, RetryBudget

events = st.lists(st.sampled_from(["ok", "fail", "left", "wait"]), max_size=60)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(events=events, failures=st.integers(1, 5))
def test_a_breaker_opens_after_failures_in_a_row_and_never_stays_open(events: list[str], failures: int) -> None:
    clock = Clock()
    breaker = Breaker(failures, 10.0, clock)
    row = 0
    for event in events:
        if event == "wait":
            clock.now += 10.0
            continue
        if not breaker.allow():
            assert row >= failures
            continue
        if event == "ok":
            breaker.succeeded()
            row = 0
        elif event == "fail":
            breaker.failed()
            row += 1
        else:
            breaker.abandoned()
        assert not (row >= failures and event == "fail") or breaker.open
    clock.now += 10.0
    assert breaker.allow()


def test_a_half_open_breaker_lets_one_call_try() -> None:
    clock = Clock()
    breaker = Breaker(1, 5.0, clock)
    assert breaker.allow()
    breaker.failed()
    assert not breaker.allow()
    clock.now = 5.0
    assert breaker.allow()
    assert not breaker.allow()
    breaker.failed()
    clock.now = 9.9
    assert not breaker.allow()
    clock.now = 10.0
    assert breaker.allow()
    breaker.succeeded()
    assert breaker.allow()
    assert breaker.allow()


@given(calls=st.lists(st.booleans(), max_size=300), ratio=st.floats(0.0, 1.0))
def test_retries_stay_within_their_share_of_calls(calls: list[bool], ratio: float) -> None:
    budget = RetryBudget(ratio)
    made = retried = 0
    for failed in calls:
        made += 1
        budget.called()
        retried += failed and budget.take()
    assert retried <= ratio * made + 3.0
    if ratio == 0.0:
        assert retried == 0
