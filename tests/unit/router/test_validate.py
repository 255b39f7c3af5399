"""Requests are checked at the edge; nothing but InvalidInput ever comes out of a bad one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pointsman.v1 import gateway_pb2

from router.access.identity import Identity, require_loopback
from router.grpc.validate import to_question
from router.settings import BadSettings, LimitSettings
from standard.domain.errors import InvalidInput
from standard.domain.filter import And, Eq, In, Range
from standard.domain.question import Question, Route

LIMITS = LimitSettings.model_construct()


def checked(request: gateway_pb2.AnswerRequest) -> Question:
    return to_question(request, Identity(), LIMITS, None)


def refused(field: str, **fields: object) -> None:
    request = gateway_pb2.AnswerRequest(**{"question": "Where is the spare pump?"} | fields)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput) as caught:
        checked(request)
    assert caught.value.field.startswith(field)


def test_a_plain_question_gets_the_defaults() -> None:
    question = checked(gateway_pb2.AnswerRequest(question="Where is the spare pump?"))
    assert (question.top_k, question.route, question.scope.collection) == (5, None, "default")
    assert question.threshold is None
    assert question.scope.tenant == "default"


def test_bad_fields_are_named() -> None:
    refused("question", question="")
    refused("question", question=" \n\t ")
    refused("question", question="?!")
    refused("question", question="a\x00b")
    refused("question", question="x" * 100_000)
    refused("top_k", top_k=-1)
    refused("top_k", top_k=10**9)
    refused("threshold", threshold=1.5)
    refused("threshold", threshold=math.nan)
    refused("route", route=77)
    refused("collection", collection="a b")
    refused("collection", collection="x" * 129)
    refused("request_id", request_id="no blanks")
    refused("session_id", session_id="\n")
    refused("budget.max_steps", budget=gateway_pb2.Budget(max_steps=21))
    refused("budget.max_steps", budget=gateway_pb2.Budget(max_steps=-1))
    refused("budget.max_tokens", budget=gateway_pb2.Budget(max_tokens=1))
    refused("budget.max_seconds", budget=gateway_pb2.Budget(max_seconds=math.inf))
    refused("budget.max_seconds", budget=gateway_pb2.Budget(max_seconds=math.nan))
    refused("budget.max_cost_usd", budget=gateway_pb2.Budget(max_cost_usd=-0.1))
    refused("history", history=[gateway_pb2.Turn(role="user", text="x")] * 10_000)
    refused("history[0].role", history=[gateway_pb2.Turn(role="system", text="x")])


def eq(key: str, value: str) -> gateway_pb2.Filter:
    return gateway_pb2.Filter(eq=gateway_pb2.Filter.Equals(key=key, value=gateway_pb2.FilterValue(text=value)))


def all_of(*filters: gateway_pb2.Filter) -> gateway_pb2.Filter:
    combined = gateway_pb2.Filter()
    getattr(combined, "and").filters.extend(filters)  # `and` is a word of Python
    return combined


def test_filters_become_conditions() -> None:
    one_of = gateway_pb2.Filter()
    getattr(one_of, "in").key = "year"
    getattr(one_of, "in").values.add(number=2021)
    within = gateway_pb2.Filter(
        range=gateway_pb2.Filter.Range(key="date", at_least=gateway_pb2.FilterValue(text="2020-01-01"))
    )
    question = checked(gateway_pb2.AnswerRequest(question="What?", filter=all_of(eq("kind", "memo"), one_of, within)))
    assert question.scope.filter == And((Eq("kind", "memo"), In("year", (2021.0,)), Range("date", "2020-01-01", None)))


def test_bad_filters_are_named() -> None:
    refused("filter", filter=gateway_pb2.Filter())
    refused("filter", filter=all_of(*[eq(str(number), "x") for number in range(1000)]))
    refused("filter.eq.key", filter=eq("", "x"))
    refused("filter.eq.value", filter=eq("k", "x" * 5000))
    deep = eq("k", "v")
    for _ in range(20):
        deep = all_of(deep)
    refused("filter", filter=deep)
    empty_range = gateway_pb2.Filter(range=gateway_pb2.Filter.Range(key="k"))
    refused("filter.range", filter=empty_range)


@given(
    st.text(max_size=300),
    st.integers(-(2**31), 2**31 - 1),
    st.floats(),
    st.integers(-(2**31), 2**31 - 1),
    st.floats(),
    st.text(max_size=20),
)
def test_any_request_is_accepted_or_refused_by_name(
    text: str, top_k: int, threshold: float, route: int, seconds: float, name: str
) -> None:
    request = gateway_pb2.AnswerRequest(
        question=text,
        top_k=top_k,
        threshold=threshold,
        route=route,  # type: ignore[arg-type]
        collection=name,
        session_id=name,
        budget=gateway_pb2.Budget(max_seconds=seconds),
    )
    try:
        question = checked(request)
    except InvalidInput as error:
        refusal = error
        assert refusal.field and refusal.problem  # noqa: PT018 - acceptance is as good an outcome
    else:
        assert 1 <= question.top_k <= 100
        assert question.text.raw == text
        assert question.route in {None, Route.STANDARD, Route.AGENTIC}


@pytest.mark.parametrize(
    "text",
    [" \n\u200b\u3164 ", "\u2060\ufeff", "\u115f\u1160\uffa0", "\u2800", "\ufe0f\U000e0101", "\U000e0041", "\u202e"],
)
def test_a_question_of_signs_that_show_nothing_is_empty(text: str) -> None:
    request = gateway_pb2.AnswerRequest(question=text)
    with pytest.raises(InvalidInput, match="empty"):
        checked(request)


@pytest.mark.parametrize("text", ["\u200bwhy\u200b", "船", "🙂", "مرحبا\u200f", "\u1112\u1161\u11ab", "क\u094dष"])
def test_what_shows_something_is_a_question(text: str) -> None:
    assert checked(gateway_pb2.AnswerRequest(question=text)).text.raw == text


def test_without_authentication_only_loopback_is_served() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "[::1]", "127.8.9.1"):
        require_loopback(host)
    for host in ("0.0.0.0", "::", "192.168.1.1", "gateway.internal"):
        with pytest.raises(BadSettings, match="POINTSMAN_SERVER__HOST"):
            require_loopback(host)
