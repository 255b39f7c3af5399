"""The estimate of tokens: linear, monotonous, and not below what the scripts of the world cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from standard.llm.tokens import estimate_tokens


def test_english_prose_costs_about_a_token_for_four_letters() -> None:
    text = "The wind limit for night sailings was raised to forty knots after the review in March. " * 20
    words = len(text.split())
    assert 1.0 * words <= estimate_tokens(text) <= 1.6 * words


def test_digits_code_and_other_scripts_cost_more_a_character() -> None:
    assert estimate_tokens("4711 0815 2024-11-05") >= 8
    assert estimate_tokens("for (i=0;i<n;i++){a[i]=b[i];}") >= 10
    assert estimate_tokens("Как высоко может быть волна") >= 24
    assert estimate_tokens("夜间航行的风速限制") >= 9


@given(st.text(), st.text())
def test_the_estimate_grows_with_the_text_and_adds_up(left: str, right: str) -> None:
    both = estimate_tokens(left + right)
    assert both >= max(estimate_tokens(left), estimate_tokens(right))
    assert both <= estimate_tokens(left) + estimate_tokens(right)


def test_nothing_costs_nothing_and_lone_surrogates_do_no_harm() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens("\ud800") >= 1
