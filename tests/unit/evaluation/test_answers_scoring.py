"""EM, F1 and whether an answer is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.evaluation.answers.scoring import exact_match, f1, is_yes_or_no, says, words

texts = st.text(alphabet=st.sampled_from("ab cthe,.1é[S]"), max_size=30)


def test_case_articles_punctuation_and_source_tags_do_not_count() -> None:
    assert exact_match("The Harbour [S2].", ["harbour"]) == 1.0
    assert words("“A pier”, the [S1, S3] slip-way") == ["pier", "slip", "way"]


def test_f1_takes_the_gold_answer_that_fits_best() -> None:
    assert f1("two grey piers", ["a slipway", "two piers"]) == pytest.approx(0.8)
    assert f1("nothing", ["two piers"]) == 0.0
    assert f1("anything", []) == 0.0


def test_an_answer_is_said_on_word_boundaries_alone() -> None:
    assert says("It costs 1,000 rupees.", ["₹1,000"])
    assert not says("It costs 11,000 rupees.", ["1,000"])
    assert not says("The capital", ["cap"])
    assert not says("anything", ["", "the"])


def test_yes_and_no_are_known_as_such() -> None:
    assert is_yes_or_no(["No."])
    assert not is_yes_or_no(["Norway"])


@given(texts, st.lists(texts, max_size=3))
def test_scores_are_fractions_and_an_exact_match_is_said_in_full(answer: str, gold: list[str]) -> None:
    assert 0.0 <= f1(answer, gold) <= 1.0
    if words(answer) and exact_match(answer, gold):
        assert f1(answer, gold) == pytest.approx(1.0)
        assert says(answer, gold)


@given(texts, texts, texts)
def test_what_is_said_stays_said_in_a_longer_text(before: str, answer: str, after: str) -> None:
    if words(answer):
        assert says(f"{before} x {answer} x {after}", [answer])
