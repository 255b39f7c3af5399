"""Which key a call brings, whatever its headers hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.access.auth import presented_key
from standard.domain.errors import Unauthenticated

KEYS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=80)
BLANKS = st.text(st.sampled_from(" \t"), max_size=3)
VALUES = st.lists(st.one_of(st.text(max_size=40), st.builds("Bearer {}".format, KEYS)), max_size=3)


@given(key=KEYS, scheme=st.sampled_from(["Bearer", "bearer", "BEARER", "bEaReR"]), before=BLANKS, after=BLANKS)
def test_a_bearer_token_is_found_in_any_spelling(key: str, scheme: str, before: str, after: str) -> None:
    assert presented_key([f"{before}{scheme} {before}{key}{after}"], []) == key


@given(key=KEYS)
def test_the_same_key_twice_is_one_key(key: str) -> None:
    assert presented_key([f"Bearer {key}"], [key]) == key
    assert presented_key(["Basic dXNlcjpwYXNz"], [key]) == key


@given(one=KEYS, other=KEYS)
def test_two_different_keys_are_refused(one: str, other: str) -> None:
    if one == other:
        return
    with pytest.raises(Unauthenticated, match="two different keys"):
        presented_key([f"Bearer {one}"], [other])
    with pytest.raises(Unauthenticated, match="two different keys"):
        presented_key([f"Bearer {one}", f"Bearer {other}"], [])


@given(authorization=VALUES, x_api_key=VALUES)
def test_any_headers_make_one_key_none_or_a_refusal(authorization: list[str], x_api_key: list[str]) -> None:
    try:
        found = presented_key(authorization, x_api_key)
    except Unauthenticated:
        return
    if found is None:
        assert not any(value.strip() for value in [*authorization, *x_api_key])
    else:
        assert any(found in value for value in [*authorization, *x_api_key])
        assert found == found.strip() != ""


@pytest.mark.parametrize("value", ["Basic dXNlcjpwYXNz", "Bearer", "Bearer two words", "token abc", "pm_1_2"])
def test_an_authorization_that_is_no_bearers_is_refused(value: str) -> None:
    with pytest.raises(Unauthenticated, match="Bearer KEY"):
        presented_key([value], [])
