"""The decision as one pure function: who wins over whom."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.decide import Circumstances, Policy, Signals, decide
from standard.domain.answer import DecisionReason
from standard.domain.question import Route

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
