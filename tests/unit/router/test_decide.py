"""The decision as one pure function: who wins over whom."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from router.decide import CanaryBy, Circumstances, Policy, Rollout, Signals, decide, lets_agentic
from router.rollout.place import canary_place, place_of
from standard.domain.answer import DecisionReason
from standard.domain.passage import Scope
from standard.domain.question import Question, Route
from standard.domain.text import UntrustedText

fractions = st.floats(0.0, 1.0)
maybe_fraction = st.none() | fractions
routes = st.sampled_from(Route)
signals = st.builds(
    Signals,
    text=maybe_fraction,
    evidence=maybe_fraction,
    combined=maybe_fraction,
    model_version=st.just("test"),
    knows_language=st.booleans(),
)
policies = st.builds(
    Policy,
    threshold=fractions,
    safe_route=routes,
    max_agentic_share=maybe_fraction,
    sticky_sessions=st.booleans(),
    min_agentic_seconds=st.floats(0.0, 10.0),
    expected_agentic_cost_usd=st.floats(0.0, 1.0),
)
around = st.builds(
    Circumstances,
    forced=st.none() | routes,
    threshold=maybe_fraction,
    session_route=st.none() | routes,
    agentic_share=fractions,
    seconds_left=st.none() | st.floats(0.0, 100.0),
    cost_left_usd=st.none() | st.floats(0.0, 10.0),
    priced=st.booleans(),
)


@given(signals, around, policies)
def test_a_forced_route_always_wins(said: Signals, where: Circumstances, policy: Policy) -> None:
    decision = decide(said, where, policy)
    if where.forced is not None:
        assert decision.route is where.forced
        assert decision.reason is DecisionReason.FORCED
    else:
        assert decision.reason is not DecisionReason.FORCED


@given(signals, around, policies)
def test_agentic_is_never_chosen_beyond_the_limits(said: Signals, where: Circumstances, policy: Policy) -> None:
    decision = decide(said, where, policy)
    if decision.route is Route.AGENTIC and where.forced is None:
        assert policy.max_agentic_share is None or where.agentic_share < policy.max_agentic_share
        if where.priced and where.seconds_left is not None:
            assert where.seconds_left >= policy.min_agentic_seconds


@given(signals, around, policies)
def test_the_decision_tells_what_it_was_compared_with(said: Signals, where: Circumstances, policy: Policy) -> None:
    decision = decide(said, where, policy)
    assert decision.threshold == (policy.threshold if where.threshold is None else where.threshold)
    assert decision.complex_probability == said.combined
    if decision.reason in {DecisionReason.CLASSIFIER, DecisionReason.EVIDENCE}:
        assert said.combined is not None
        assert (decision.route is Route.AGENTIC) == (said.combined >= decision.threshold)


@given(fractions, fractions, around, policies)
def test_a_higher_probability_never_makes_the_route_simpler(
    one: float, other: float, where: Circumstances, policy: Policy
) -> None:
    low, high = sorted((one, other))
    if decide(Signals(combined=low), where, policy).route is Route.AGENTIC:
        assert decide(Signals(combined=high), where, policy).route is Route.AGENTIC


def test_a_silent_classifier_takes_the_safe_route() -> None:
    for route in Route:
        decision = decide(Signals(), Circumstances(), Policy(safe_route=route))
        assert (decision.route, decision.reason) == (route, DecisionReason.FALLBACK)


def test_an_unknown_language_takes_the_safe_route() -> None:
    decision = decide(Signals(combined=0.9, knows_language=False), Circumstances(), Policy(threshold=0.5))
    assert (decision.route, decision.reason) == (Route.STANDARD, DecisionReason.LANGUAGE)


def test_a_sticky_session_stays_agentic() -> None:
    where = Circumstances(session_route=Route.AGENTIC)
    assert decide(Signals(combined=0.1), where, Policy(sticky_sessions=True)).reason is DecisionReason.STICKY
    assert decide(Signals(combined=0.1), where, Policy()).route is Route.STANDARD


def test_text_alone_and_evidence_are_told_apart() -> None:
    assert decide(Signals(text=0.4, combined=0.4), Circumstances(), Policy()).reason is DecisionReason.CLASSIFIER
    both = Signals(text=0.4, evidence=0.9, combined=0.8)
    assert decide(both, Circumstances(), Policy()).reason is DecisionReason.EVIDENCE


def test_too_little_time_or_money_makes_it_standard() -> None:
    policy = Policy(threshold=0.5, min_agentic_seconds=2.0, expected_agentic_cost_usd=0.01)
    complex_question = Signals(combined=0.9)
    assert decide(complex_question, Circumstances(seconds_left=1.0), policy).reason is DecisionReason.BUDGET
    assert decide(complex_question, Circumstances(cost_left_usd=0.001), policy).reason is DecisionReason.BUDGET
    assert decide(complex_question, Circumstances(seconds_left=1.0, priced=False), policy).route is Route.AGENTIC


@given(signals, around, policies, st.sampled_from(Rollout), st.floats(0.0, 100.0), st.floats(0.0, 99.9), st.booleans())
def test_the_rollout_only_ever_turns_agentic_into_standard(
    said: Signals, where: Circumstances, policy: Policy, mode: Rollout, percent: float, place: float, kill: bool
) -> None:
    where = replace(where, canary_place=place)
    policy = replace(policy, rollout=mode, canary_percent=percent, kill_switch=kill)
    before = decide(said, where, replace(policy, rollout=Rollout.ENFORCE, kill_switch=False))
    after = decide(said, where, policy)
    if after != before:
        assert after.route is Route.STANDARD
        assert after.reason is DecisionReason.ROLLOUT
        assert not lets_agentic(where, policy)
    if kill or mode is Rollout.OFF:
        assert after.route is Route.STANDARD
    if where.forced is not None and not kill and mode is not Rollout.OFF:
        assert after.route is where.forced


def asked(tenant: str, session: str, request: str) -> Question:
    return Question(UntrustedText("?"), Scope(tenant=tenant), session_id=session, request_id=request)


@given(st.text(), st.text(min_size=1), st.text(), st.text())
def test_a_place_depends_on_the_session_alone_or_the_tenant_alone(
    tenant: str, session: str, one: str, other: str
) -> None:
    first, second = asked(tenant, session, one), asked(tenant, session, other)
    assert canary_place(first, CanaryBy.SESSION) == canary_place(second, CanaryBy.SESSION)
    assert canary_place(first, CanaryBy.TENANT) == canary_place(asked(tenant, one, one), CanaryBy.TENANT)
    assert 0.0 <= canary_place(first, CanaryBy.SESSION) < 100.0


def test_places_are_spread_evenly() -> None:
    places = [place_of("session", "acme", str(number)) for number in range(10_000)]
    for edge in range(0, 100, 10):
        assert 850 <= sum(edge <= place < edge + 10 for place in places) <= 1150


def test_places_are_the_same_in_every_release() -> None:
    assert round(place_of("session", "acme", "s-1"), 6) == 97.133909
