"""The decision: which route a question takes. One pure function over what is known, nothing else.

Prediction proposes (the text model), evidence corrects (the first retrieval), and the caller's and the tenant's limits
dispose. The order of the rules is the order of their authority.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from standard.domain.answer import Decision, DecisionReason
from standard.domain.question import Route


@dataclass(frozen=True, slots=True)
class Signals:
    """What the models say, each a probability (0-1) that the question needs the agentic route.

    `text` and `evidence` are the single models' (None: did not speak); `combined` is calibrated over both where
    evidence is there, else it is the text's. `knows_language` is False where the embedder can't do the question's
    language. `adapted_by` are the log-odds that adaptation to own labels added to `combined`.
    """

    text: float | None = None
    evidence: float | None = None
    combined: float | None = None
    model_version: str = ""
    knows_language: bool = True
    adapted_by: float = 0.0


class Rollout(StrEnum):
    """How far the agentic route is rolled out.

    `off`: nobody takes it; `shadow`: nobody, a sample is answered by it aside; `canary`: a percentage may; `enforce`:
    everybody may. Off overrides even a request's own choice, so that it is a way back; shadow and canary leave that be.
    """

    OFF = "off"
    SHADOW = "shadow"
    CANARY = "canary"
    ENFORCE = "enforce"


class CanaryBy(StrEnum):
    """What a canary's percentage is of."""

    SESSION = "session"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy in force for a tenant; fields as in the settings section [routing].

    `canary_percent` is 0 to 100, `shadow_sample` a share of questions, 0 to 1; `kill_switch` is as `rollout` off.
    """

    threshold: float = 0.5
    safe_route: Route = Route.STANDARD
    max_agentic_share: float | None = None
    sticky_sessions: bool = False
    min_agentic_seconds: float = 2.0
    expected_agentic_cost_usd: float = 0.0
    rollout: Rollout = Rollout.ENFORCE
    canary_percent: float = 0.0
    canary_by: CanaryBy = CanaryBy.SESSION
    shadow_sample: float = 1.0
    kill_switch: bool = False

    @property
    def mode(self) -> Rollout:
        """The rollout in force."""
        return Rollout.OFF if self.kill_switch else self.rollout


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What else bears on the decision.

    `forced` and `threshold` come from the request; `session_route` is the session's earlier final route;
    `agentic_share` (0-1) the tenant's recent share; `seconds_left` and `cost_left_usd` what the caller's limits leave
    (None: no limit); `priced` says whether an agentic answer costs time and money at all (a language model is in use);
    `canary_place` (0 to 100) is compared with the canary's percentage.
    """

    forced: Route | None = None
    threshold: float | None = None
    session_route: Route | None = None
    agentic_share: float = 0.0
    seconds_left: float | None = None
    cost_left_usd: float | None = None
    priced: bool = True
    canary_place: float = 0.0


def decide(signals: Signals, circumstances: Circumstances, policy: Policy) -> Decision:
    """Choose the route.

    Forced routes win; then an unknown language or a silent classifier takes the safe route; then a sticky session; then
    probability against threshold. An agentic choice that the rollout does not let through, or that the caller's limits
    or the tenant's cap cannot carry, becomes standard (reason rollout, budget or cap).
    """
    threshold = policy.threshold if circumstances.threshold is None else circumstances.threshold
    route, reason = _choose(signals, circumstances, policy, threshold)
    if route is Route.AGENTIC and not lets_agentic(circumstances, policy):
        route, reason = Route.STANDARD, DecisionReason.ROLLOUT
    elif route is Route.AGENTIC and reason is not DecisionReason.FORCED:
        if _beyond_limits(circumstances, policy):
            route, reason = Route.STANDARD, DecisionReason.BUDGET
        elif policy.max_agentic_share is not None and circumstances.agentic_share >= policy.max_agentic_share:
            route, reason = Route.STANDARD, DecisionReason.CAP
    return Decision(
        route=route,
        reason=reason,
        complex_probability=signals.combined,
        threshold=threshold,
        text_probability=signals.text,
        evidence_probability=signals.evidence,
        model_version=signals.model_version,
    )


def lets_agentic(circumstances: Circumstances, policy: Policy) -> bool:
    """Whether the rollout lets this question take the agentic route, at once or by a hand-over."""
    match policy.mode:
        case Rollout.OFF:
            return False
        case Rollout.SHADOW:
            return circumstances.forced is Route.AGENTIC
        case Rollout.CANARY:
            return circumstances.forced is Route.AGENTIC or circumstances.canary_place < policy.canary_percent
        case Rollout.ENFORCE:
            return True


def _choose(
    signals: Signals, circumstances: Circumstances, policy: Policy, threshold: float
) -> tuple[Route, DecisionReason]:
    if circumstances.forced is not None:
        return circumstances.forced, DecisionReason.FORCED
    if not signals.knows_language:
        return policy.safe_route, DecisionReason.LANGUAGE
    if signals.combined is None:
        return policy.safe_route, DecisionReason.FALLBACK
    if policy.sticky_sessions and circumstances.session_route is Route.AGENTIC:
        return Route.AGENTIC, DecisionReason.STICKY
    reason = DecisionReason.CLASSIFIER if signals.evidence is None else DecisionReason.EVIDENCE
    return (Route.AGENTIC if signals.combined >= threshold else Route.STANDARD), reason


def _beyond_limits(circumstances: Circumstances, policy: Policy) -> bool:
    if not circumstances.priced:
        return False
    if circumstances.seconds_left is not None and circumstances.seconds_left < policy.min_agentic_seconds:
        return True
    cost = circumstances.cost_left_usd
    return cost is not None and policy.expected_agentic_cost_usd > 0.0 and cost < policy.expected_agentic_cost_usd
