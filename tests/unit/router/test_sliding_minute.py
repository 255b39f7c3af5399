"""How long until a sliding minute has room: not a moment too early, and never longer than it takes."""

from __future__ import annotations

from math import floor

from hypothesis import assume, given
from hypothesis import strategies as st

from router.access.counts import seconds_until

LENGTH = 60.0
MOMENT = 1e-6


def counted(at: float, before: int, before_left: float, current: int, current_left: float) -> int:
    """What the window counts `at` seconds from now, by the definition of the sliding window counter."""
    over = current_left - LENGTH
    if at < over:
        return floor(before * max(0.0, before_left - at) / LENGTH) + current
    return floor(current * max(0.0, LENGTH - (at - over)) / LENGTH)


@given(
    st.integers(0, 200),
    st.integers(0, 200),
    st.integers(0, 200),
    st.floats(0.1, LENGTH - 0.1),
)
def test_there_is_room_when_it_is_promised_and_not_before(most: int, before: int, current: int, left: float) -> None:
    window = (before, left, current, left + LENGTH)
    seconds = seconds_until(most, LENGTH, *window)
    assert 0.0 <= seconds <= 2 * LENGTH
    assert counted(seconds + MOMENT, *window) <= most
    assume(seconds > MOMENT)
    assert counted(seconds - MOMENT, *window) > most
