"""W3C trace context as it is read: what is valid is passed on as it came, everything else is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.settings import BadSettings, load_settings, masked
from router.telemetry.context import Parent, read_parent
from router.telemetry.tracing import address_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
hexes = st.integers(1, 2**128 - 1).map("{:032x}".format)
short_hexes = st.integers(1, 2**64 - 1).map("{:016x}".format)


@given(hexes, short_hexes, st.integers(0, 255))
def test_a_valid_header_is_read_and_sent_on(trace_id: str, span_id: str, flags: int) -> None:
    parent = read_parent([f"00-{trace_id}-{span_id}-{flags:02x}"])
    assert parent == Parent(trace_id, span_id, bool(flags & 1))
    assert parent.place().headers() == {"traceparent": f"00-{trace_id}-{span_id}-0{flags & 1}"}


@given(st.text(max_size=80))
def test_anything_else_is_none_and_never_an_error(text: str) -> None:
    parent = read_parent([text], [text])
    assert parent is None or text.strip().startswith(f"{text.strip()[:2]}-{parent.trace_id}-{parent.span_id}-")


def test_a_version_to_come_may_say_more_and_the_one_there_is_may_not() -> None:
    assert read_parent([f"01-{TRACE}-{SPAN}-01-more"]) == Parent(TRACE, SPAN, sampled=True)
    assert read_parent([f"00-{TRACE}-{SPAN}-01-more"]) is None
    assert read_parent([f"ff-{TRACE}-{SPAN}-01"]) is None


def test_two_headers_are_none() -> None:
    assert read_parent([f"00-{TRACE}-{SPAN}-01"] * 2) is None


def test_states_are_joined_and_left_out_where_they_are_too_long_or_not_printable() -> None:
    header = [f"00-{TRACE}-{SPAN}-01"]

    def state(*states: str) -> str:
        parent = read_parent(header, states)
        assert parent is not None
        return parent.state

    assert state("a=1", " b=2 ") == "a=1,b=2"
    assert state("a=" + "x" * 511) == ""
    assert state("a=1\r\nx-admin: yes") == ""
    assert state(",".join(f"k{number}=v" for number in range(33))) == ""
    assert state() == ""


@pytest.mark.parametrize(
    ("endpoint", "sent_to"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("https://collector/", "https://collector/v1/traces"),
        ("https://tenant.example/otlp/v1/traces", "https://tenant.example/otlp/v1/traces"),
    ],
)
def test_an_address_without_a_path_gets_that_of_the_protocol(endpoint: str, sent_to: str) -> None:
    assert address_of(load_settings(traces={"endpoint": endpoint}).traces) == sent_to


@pytest.mark.parametrize("endpoint", ["collector:4318", "grpc://collector:4317", "http://me:word@collector", "http://"])
def test_an_endpoint_that_is_no_plain_address_stops_the_start(endpoint: str) -> None:
    with pytest.raises(BadSettings, match=r"traces\.endpoint"):
        load_settings(traces={"endpoint": endpoint})


def test_headers_for_the_collector_are_never_shown() -> None:
    settings = load_settings(traces={"headers": {"authorization": "Bearer hush-hush"}})
    assert "hush-hush" not in repr(settings)
    assert "hush-hush" not in str(masked(settings))
    with pytest.raises(BadSettings) as caught:
        load_settings(traces={"headers": {"authorization": 4711}})
    assert "4711" not in str(caught.value)
