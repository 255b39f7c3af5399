"""Names in running text."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from standard.retrieval.names import MAX_SPANS, MAX_WORDS, strong_names, title_spans

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy

title_words = st.lists(st.from_regex(r"[A-Z0-9][A-Za-zäéß0-9]{0,6}", fullmatch=True), min_size=1, max_size=MAX_WORDS)
lower_words = st.lists(st.from_regex(r"[a-zäéß]{1,7}", fullmatch=True), max_size=12)


@patient
@given(lower_words, title_words, lower_words, st.sampled_from(["", ".", ",", "'s", "’s", "?", ")"]))
def test_every_title_that_stands_in_a_text_is_among_the_spans(
    before: list[str], title: list[str], after: list[str], closing: str
) -> None:
    name = " ".join(title)
    text = " ".join([*before, name + closing, *after])
    assert name.lower() in title_spans(text)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("He drummed on Steely Dan's album Katy Lied.", "steely dan"),
        ("as the Bank of England said", "bank of england"),
        ("see POL-002 (Night sailing, v2) for that", "pol-002"),
        ("She lives in Washington, D.C. and", "washington, d.c."),
        ("Ärztekammer Nordrhein: Satzung", "ärztekammer nordrhein"),
        ("first\nRush", "rush"),
    ],
)
def test_titles_as_people_write_them(text: str, title: str) -> None:
    assert title in title_spans(text)


def test_windows_do_not_reach_over_lines() -> None:
    assert "one two" not in title_spans("One\nTwo")


def test_questions_in_lower_case_name_titles_of_two_words_and_more() -> None:
    spans = title_spans("who wrote pride and prejudice", any_case=True)
    assert "pride and prejudice" in spans
    assert "prejudice" not in spans


@patient
@given(st.text(max_size=2000))
def test_any_text_yields_bounded_lists(text: str) -> None:
    spans = title_spans(text, any_case=True)
    assert len(spans) == len(set(spans)) <= MAX_SPANS + 3
    names = strong_names(text)
    assert len(names) == len(set(names)) <= 41
    assert all(name.strip() for name in names)


def test_a_long_text_stays_bounded() -> None:
    assert len(title_spans(" ".join(f"Name{n}" for n in range(50_000)))) <= MAX_SPANS + 3


def test_strong_names_are_runs_of_capitals_and_codes() -> None:
    text = (
        "The MV Kittiwake was repaired under P-2401. Incident report INC-2023-008 and the Bank of England agree. "
        "In March 2024 Sunniva Blake moved to Berth 2. However, nothing else on 12 May. Outside it rained."
    )
    assert strong_names(text) == [
        "MV Kittiwake",
        "P-2401",
        "INC-2023-008",
        "Bank of England",
        "March 2024 Sunniva Blake",
        "Berth 2",
        "Berth",
    ]


def test_a_word_that_opens_a_sentence_is_a_name_only_if_it_stands_elsewhere() -> None:
    assert strong_names("Petrel left. The crew of Petrel slept.") == ["Petrel"]
    assert strong_names("Petrel left. The crew slept.") == []
