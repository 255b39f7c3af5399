"""What to expect of a rollout, from a log of one's own questions: share, cost and latency, before it is switched on.

The routing models read each question, and with a collection its first retrieval; nothing is answered. What an answer of
each route takes is what the journal measured (of the agentic route also aside), or what the caller names; where neither
is there it is None.
"""

from __future__ import annotations

import math
import time
from array import array
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from router.asked import asked_text, embedded_text
from router.decide import Circumstances, Rollout, decide
from router.evaluation.plots import BarChart, Bars, Line, LineChart
from router.evaluation.report import Report, Section, Table
from router.rollout.figures import BUCKETS, bucket_of, quantile
from standard.domain.question import Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import numpy as np
    from numpy.typing import NDArray

    from router.decide import Policy, Signals
    from router.parts import RoutingModels
    from router.rollout.figures import Arm
    from router.rollout.report import Part
    from standard.domain.passage import Retriever
    from standard.domain.question import Question

THRESHOLDS: Final = tuple(number / 20 for number in range(1, 20))


@dataclass(frozen=True, slots=True)
class Takes:
    """What an answer of a route takes on average, None where nobody knows; `source` is journal, aside or option."""

    seconds: float | None
    usd: float | None
    source: str | None
    runs: int = 0


def takes_of(part: Part) -> dict[Route, Takes]:
    """What each route took by the journal; asides stand for the agentic route where it never answered itself.

    Questions that a rollout held back count as standard, those that escalated as well: they began there.
    """
    arms = part.arms
    standard = [arms["standard"], arms["held_back"]]
    agentic, source = ([arms["agentic"]], "journal") if arms["agentic"].runs else ([part.pairs.aside], "aside")
    return {Route.STANDARD: _mean(standard, "journal"), Route.AGENTIC: _mean(agentic, source)}


def _mean(arms: list[Arm], source: str) -> Takes:
    runs = sum(arm.runs for arm in arms)
    if not runs:
        return Takes(None, None, None)
    seconds = math.fsum(math.fsum(arm.seconds) for arm in arms)
    return Takes(seconds / runs, math.fsum(arm.usd for arm in arms) / runs, source, runs)


@dataclass(slots=True)
class Simulation:
    """What the models said of the questions so far; `policy` is the one in force but for its rollout."""

    policy: Policy
    takes: dict[Route, Takes]
    probabilities: array[float] = field(default_factory=lambda: array("d"))
    silent: dict[str, int] = field(default_factory=dict)
    agentic: int = 0
    questions: int = 0
    seconds: array[float] = field(default_factory=lambda: array("d"))

    def take(self, signals: Signals, seconds: float) -> Route:
        """Decide a question as `enforce` would, and count it; `seconds` is what the look at it took."""
        decision = decide(signals, Circumstances(), replace(self.policy, rollout=Rollout.ENFORCE, kill_switch=False))
        self.questions += 1
        self.agentic += decision.route is Route.AGENTIC
        self.seconds.append(seconds)
        if signals.combined is None or not signals.knows_language:
            self.silent[decision.reason.value] = self.silent.get(decision.reason.value, 0) + 1
        else:
            self.probabilities.append(signals.combined)
        return decision.route

    def view(self) -> dict[str, Any]:
        """As JSON values. `capped_share` is what the policy's cap leaves of `agentic_share`."""
        share = self.agentic / self.questions if self.questions else None
        cap = self.policy.max_agentic_share
        capped = share if share is None or cap is None else min(share, cap)
        buckets = [0] * BUCKETS
        for probability in self.probabilities:
            buckets[bucket_of(probability)] += 1
        return {
            "questions": self.questions,
            "threshold": self.policy.threshold,
            "agentic_share": share,
            "capped_share": capped,
            "by_safe_route": self.silent,
            "expected": self._expected(capped),
            "look_seconds_p50": quantile(self.seconds, 0.5),
            "look_seconds_p95": quantile(self.seconds, 0.95),
            "takes": {
                route.value: {"seconds": each.seconds, "usd": each.usd, "source": each.source, "runs": each.runs}
                for route, each in self.takes.items()
            },
            "buckets": [
                {"from": number / BUCKETS, "to": (number + 1) / BUCKETS, "questions": count}
                for number, count in enumerate(buckets)
            ],
            "thresholds": [self._at(threshold) for threshold in THRESHOLDS],
        }

    def _at(self, threshold: float) -> dict[str, Any]:
        above = sum(probability >= threshold for probability in self.probabilities)
        silent = sum(self.silent.values()) if self.policy.safe_route is Route.AGENTIC else 0
        share = (above + silent) / self.questions if self.questions else None
        return {"threshold": threshold, "agentic_share": share} | self._expected(share)

    def _expected(self, share: float | None) -> dict[str, float | None]:
        standard, agentic = self.takes[Route.STANDARD], self.takes[Route.AGENTIC]
        return {
            "seconds_mean": _mixed(share, standard.seconds, agentic.seconds),
            "usd_per_1000": _mixed(share, standard.usd, agentic.usd, 1000.0),
        }


def _mixed(share: float | None, standard: float | None, agentic: float | None, times: float = 1.0) -> float | None:
    """A mean over both routes; what a route takes need not be known where nothing goes there."""
    if share is None or (standard is None and share < 1.0) or (agentic is None and share > 0.0):
        return None
    return times * ((1.0 - share) * (standard or 0.0) + share * (agentic or 0.0))


async def look_at(
    question: Question,
    models: RoutingModels,
    embed: Callable[[str], Awaitable[NDArray[np.float32]]],
    retriever: Retriever,
) -> tuple[Signals, float]:
    """What the models say of a question, with its first retrieval where it names a collection, and the seconds taken.

    Raises what embedder and retriever raise.
    """
    at = time.perf_counter()
    reading = await models.read(question)
    signals = models.text_signals(reading)
    if question.scope.collection:
        vector = await embed(embedded_text(question))
        first = await retriever.search(question.scope, asked_text(question), vector, k=question.top_k)
        signals = await models.signals(reading, vector, first)
    return signals, time.perf_counter() - at


def simulation_report(results: dict[str, Any]) -> Report:
    """The simulation for people, with charts."""
    rows = [
        (each["threshold"], each["agentic_share"], each["seconds_mean"], each["usd_per_1000"])
        for each in results["thresholds"]
    ]
    takes = Table(
        ("route", "seconds", "US dollars", "runs", "source"),
        [(name, each["seconds"], each["usd"], each["runs"], each["source"]) for name, each in results["takes"].items()],
        digits=5,
    )
    groups = [f"{bucket['from']:.1f}-{bucket['to']:.1f}" for bucket in results["buckets"]]
    counts = Bars("questions", [float(bucket["questions"]) for bucket in results["buckets"]])
    shares = [each["agentic_share"] or 0.0 for each in results["thresholds"]]
    return Report(
        "Rollout simulated",
        [
            Section("What an answer takes", tables=[takes]),
            Section(
                "By threshold",
                tables=[Table(("threshold", "agentic share", "seconds, mean", "US dollars per 1,000"), rows)],
                charts=[
                    LineChart(
                        "share",
                        "Share of the agentic route",
                        "threshold",
                        "share",
                        [Line("agentic", [each["threshold"] for each in results["thresholds"]], shares)],
                        at=results["threshold"],
                    ),
                    BarChart("probabilities", "Probabilities", "questions", groups, [counts], None),
                ],
            ),
        ],
        summary=[
            f"{results['questions']} questions at threshold {results['threshold']:.3f}.",
            "Nothing was answered: the share is by the models, time and cost by what is known of each route.",
        ],
    )
