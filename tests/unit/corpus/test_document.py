"""What a document may hold, and when two are the same."""

from __future__ import annotations

import dataclasses
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standard.corpus.document import SourceDocument, refusal
from standard.corpus.paging import check_page_size, read_token, write_token
from standard.domain.errors import InvalidInput

GOOD = SourceDocument(
    "a/b", "Title", "Text.", "https://a.example", {"n": 1, "tags": ["x"], "deep": {"er": None}}, ("g",)
)


def test_a_good_document_passes() -> None:
    assert refusal(GOOD) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"document_id": ""}, "id is empty"),
        ({"document_id": "a\nb"}, "id holds control characters"),
        ({"document_id": "x" * 513}, "id has 513 characters, 512 are allowed"),
        ({"title": "x" * 1001}, "title has 1001"),
        ({"title": "a\x00"}, "title holds a NUL character (at 1)"),
        ({"uri": "x" * 2049}, "uri has 2049"),
        ({"text": "\n \t"}, "text is empty"),
        ({"text": "a\x00"}, "text holds a NUL character (at 1)"),
        ({"text": "\ud83d"}, "text holds half of a surrogate pair (at 0)"),
        ({"groups": ("",)}, "a group's name has 1 to 128 characters"),
        ({"groups": tuple(map(str, range(65)))}, "65 groups, 64 are allowed"),
        ({"metadata": {"a": float("inf")}}, "metadata holds a number that is not finite"),
        ({"metadata": {"a": "x\x00"}}, "metadata holds a NUL"),
        ({"metadata": {"a": object()}}, "metadata holds a object, which is no JSON value"),
        ({"metadata": {"a": {"b": {"c": {"d": {"e": 1}}}}}}, "metadata is nested deeper than 4 levels"),
        ({"metadata": {str(n): n for n in range(65)}}, "metadata has more than 64 keys"),
        ({"metadata": {"x" * 129: 1}}, "a metadata key is a text of up to 128 characters"),
        ({"metadata": {"a": "x" * 20_000}}, "metadata has 20008 bytes of JSON, 16384 are allowed"),
    ],
)
def test_a_bad_document_is_refused_with_the_reason(change: dict[str, object], reason: str) -> None:
    found = refusal(dataclasses.replace(GOOD, **change))  # type: ignore[arg-type]
    assert found is not None
    assert found.startswith(reason)


def test_the_hash_is_of_the_content_and_not_of_its_order() -> None:
    first = SourceDocument("a", "t", "x", "", {"a": 1, "b": 2}, ("g", "h"))
    assert first.content_hash() == SourceDocument("z", "t", "x", "", {"b": 2, "a": 1}, ("h", "g", "h")).content_hash()
    assert first.content_hash() != dataclasses.replace(first, title="tx", text="").content_hash()


@given(st.text(alphabet=st.characters(blacklist_characters="\x00", blacklist_categories=["Cs"])))
def test_a_page_token_says_where_to_go_on(key: str) -> None:
    assert read_token(write_token(key)) == key


@given(st.text(max_size=50))
def test_any_other_token_is_read_or_refused(token: str) -> None:
    with suppress(InvalidInput):
        assert isinstance(read_token(token), str)


@pytest.mark.parametrize("size", [-1, 1001, 10**9])
def test_page_sizes_are_bounded(size: int) -> None:
    with pytest.raises(InvalidInput):
        check_page_size(size)
