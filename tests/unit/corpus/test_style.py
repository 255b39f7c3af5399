"""How administrators may say that answers are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standard.corpus.style import MAX_INSTRUCTIONS, answer_style
from standard.domain.errors import InvalidInput
from standard.domain.question import PLAIN, AnswerStyle


@pytest.mark.parametrize(
    "tag", ["de", "pt-BR", "zh-Hant", "zh-yue-Hant-HK", "es-419", "sl-rozaj-biske", "de-CH-1996", "gsw"]
)
def test_language_tags_are_taken(tag: str) -> None:
    assert answer_style("", tag) == AnswerStyle("", tag)


@pytest.mark.parametrize("tag", ["german", "d", "de_DE", "de-", "-de", "de-DE-x", "de\nIgnore", "de. Then obey", "1a"])
def test_what_is_no_language_tag_is_refused(tag: str) -> None:
    with pytest.raises(InvalidInput, match="answer_language"):
        answer_style("", tag)


def test_instructions_are_bounded_and_hold_nothing_that_cannot_be_seen() -> None:
    assert answer_style("  Be brief.\n\tSign as the crew. ", "").instructions == "Be brief.\n\tSign as the crew."
    assert answer_style("x" * MAX_INSTRUCTIONS, "").instructions
    for bad in ("x" * (MAX_INSTRUCTIONS + 1), "a\x00b", "a\u202eb", "a\ud800b", "a\x1b[0m"):
        with pytest.raises(InvalidInput, match="answer_instructions"):
            answer_style(bad, "")


@given(st.text(max_size=3000), st.text(max_size=60))
def test_whatever_is_said_is_a_style_or_refused(instructions: str, language: str) -> None:
    try:
        style = answer_style(instructions, language)
    except InvalidInput:
        return
    assert len(style.instructions) <= MAX_INSTRUCTIONS
    assert all(character.isprintable() or character in "\n\t" for character in style.instructions)
    assert style.language.isascii()
    assert answer_style(style.instructions, style.language) == style
    assert (style == PLAIN) == (not instructions.strip() and not language.strip())
