"""Where sentences end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standard.corpus.sentences import sentence_spans


def split(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text, 0, len(text))]


@pytest.mark.parametrize(
    "sentences",
    [
        ["Dr. Smith paid $3.50.", "He left at noon.", "Then version 2.0 came."],
        ["See Fig. 3 and No. 12 for details.", "J. R. Tolkien wrote it."],
        ["It was made in the U.S. in 1990.", "Sales rose by 4.5 percent!", "Why?", '"Nobody knows."', "Ok."],
        ["She asked \u201cWhy?\u201d and left.", "(It rained.)", "They stayed..."],
        ["会議は三時です。", "資料を読んでください！"],
        ["यह पहला वाक्य है।", "यह दूसरा है।"],
        ["ما اسمك؟", "أنا هنا."],
        ["Το πρώτο.", "Το δεύτερο."],
        ["Er kam z.B. gestern an.", "Sie nicht."],
        ["1. Open the lid and wait.", "Then close it."],
        ["Yahoo! is a company.", "So is e.g. this one."],
        ["The **first** one ends here.**", "The second follows."],
    ],
)
def test_sentences_are_found(sentences: list[str]) -> None:
    separator = "" if sentences[0].endswith("。") else " "
    assert split(separator.join(sentences)) == sentences


def test_a_sentence_goes_on_over_line_ends() -> None:
    assert split("The first goes\nover two lines. The second\ntoo.") == [
        "The first goes\nover two lines.",
        "The second\ntoo.",
    ]


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from('.!? \n。Aa1"')), max_size=300), st.data())
def test_spans_hold_all_that_is_not_blank(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    place = start
    for first, last in sentence_spans(text, start, end):
        assert place <= first < last <= end
        assert not text[place:first].strip()
        assert text[first:last] == text[first:last].strip()
        place = last
    assert not text[place:end].strip()
