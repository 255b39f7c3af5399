"""Times of day in one spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic.same_need.clock import spell_times


@pytest.mark.parametrize(
    ("said", "spelt"),
    [
        ("leaves at 9 pm", "leaves at 21:00"),
        ("leaves at 9pm", "leaves at 21:00"),
        ("leaves at 9:05", "leaves at 09:05"),
        ("leaves at 9.30 a.m.", "leaves at 09:30"),
        ("open at 12 am", "open at 00:00"),
        ("open at noon", "open at 12:00"),
        ("open at 12 noon", "open at 12:00"),
        ("from midnight on", "from 00:00 on"),
        ("at 12 o'clock", "at 12:00"),
        ("after half past ten in the evening", "after 22:30"),
        ("a quarter to nine in the morning", "a 08:45"),
        ("at 9", "at 9"),
        ("ten ships at 10:00", "ten ships at 10:00"),
        ("the ratio 1:200 is not one", "the ratio 1:200 is not one"),
        ("half of the ten ships", "half of the ten ships"),
    ],
)
def test_times_are_spelt_in_one_way(said: str, spelt: str) -> None:
    assert spell_times(said) == spelt


@given(st.text(max_size=60))
def test_any_text_is_taken_and_a_second_reading_changes_nothing(text: str) -> None:
    once = spell_times(text)
    assert spell_times(once) == once


@given(st.integers(0, 23), st.integers(0, 59))
def test_twelve_hours_and_twenty_four_are_the_same(hour: int, minute: int) -> None:
    half = f"{hour % 12 or 12}:{minute:02d} {'am' if hour < 12 else 'pm'}"
    assert spell_times(f"at {half} sharp") == f"at {hour:02d}:{minute:02d} sharp"
