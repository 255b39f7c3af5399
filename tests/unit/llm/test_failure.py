"""Failures: their kinds, their waits, and what of a server's words may be shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standard.llm.failure import quotable, retry_after, server_name


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
    ],
)
def test_retry_after_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_retry_after_as_a_date_counts_from_now() -> None:
    wait = retry_after({"retry-after": format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)})
    assert wait is not None
    assert 27 < wait <= 30


@given(st.text(max_size=40))
def test_any_retry_after_is_a_wait_or_none(value: str) -> None:
    wait = retry_after({"retry-after": value})
    assert wait is None or wait >= 0


def test_the_key_is_taken_out_whole_and_in_part() -> None:
    secret = "sk-proj-abcdefghijklmnop"
    shown = quotable(f"bad key {secret} or {secret[4:14]}\nthe end", secret=secret, prompt="")
    assert "abcdef" not in shown
    assert shown.endswith("the end")


def test_words_that_echo_the_prompt_are_not_shown_and_others_are() -> None:
    prompt = "The wind limit for night sailings is forty knots."
    assert quotable(f"bad input: {prompt}", secret="", prompt=prompt) == ""
    assert quotable("model `tiny` not found", secret="", prompt=prompt) == "model `tiny` not found"


def test_a_server_is_named_without_its_credentials() -> None:
    assert server_name("https://user:pass@models.example:8443/v1?key=1") == "https://models.example:8443"
