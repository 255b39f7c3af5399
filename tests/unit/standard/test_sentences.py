"""Sentences as exact spans."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standard.sentences import LONGEST, sentence_spans
from standard.words import content_stems, stem, words


def sentences(text: str) -> list[str]:
    return [text[slice(*span)] for span in sentence_spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Dr. Smith met J. Doe at 5 p.m. today. He left.", ["Dr. Smith met J. Doe at 5 p.m. today.", "He left."]),
        ("See No. 5 and Fig. 2, e.g. the U.S. map. Done.", ["See No. 5 and Fig. 2, e.g. the U.S. map.", "Done."]),
        ("It costs 3.50 EUR. Cheap.", ["It costs 3.50 EUR.", "Cheap."]),
        ('He said "stop." She went on.', ['He said "stop."', "She went on."]),
        ("# Title\nText follows here.", ["# Title", "Text follows here."]),
        ("- one\n- two. Three.\n1. four", ["- one", "- two.", "Three.", "1. four"]),
        ("| a | b |\n| 1. x | 2 |", ["| a | b |", "| 1. x | 2 |"]),
        ("Price: 42\nWeight: 3 kg", ["Price: 42", "Weight: 3 kg"]),
        (
            "This is a line that a page of paper has cut at its right\nedge, and goes on. New.",
            ["This is a line that a page of paper has cut at its right\nedge, and goes on.", "New."],
        ),
        ("夜间不航行。风速四十节！好", ["夜间不航行。", "风速四十节！", "好"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_where_sentences_end(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(
    st.text()
    | st.lists(st.sampled_from(["A b", ". ", "\n", "\n\n", "- ", "| ", "x" * 60, "Dr", "3", "。"])).map("".join)
)
def test_spans_are_in_order_trimmed_short_and_hold_everything(text: str) -> None:
    spans = sentence_spans(text)
    at = 0
    for start, end in spans:
        assert at <= start < end <= len(text)
        assert end - start <= LONGEST
        assert not text[at:start].strip()
        assert text[start:end] == text[start:end].strip()
        at = end
    assert not text[at:].strip()


def test_words_are_made_comparable() -> None:
    assert stem("stopped") == stem("stops") == stem("stop") == "stop"
    assert stem("policies") == stem("policy")
    assert stem("refunds") == stem("refund")
    assert stem("sailings") == stem("sailing") == stem("sail")
    assert stem("1,200") == "1200"
    assert words("Wind > 40 kn at 12:30, 3.5%") == ["wind", "40", "kn", "at", "12:30", "3.5%"]
    assert words("夜间航行") == ["夜间", "间航", "航行"]
    assert content_stems("What is the refund for a cancelled sailing?") == ["refund", "cancel", "sail"]
