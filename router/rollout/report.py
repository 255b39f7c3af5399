"""What a rollout brought, from the journal: what was decided, what each route took, and what was answered aside.

Three arms: `standard` (decided so), `agentic` (decided so), and `held_back` (would have been agentic, and the rollout
did not let it). Under a canary the last two are like questions, told apart by a hash: their difference is its effect.
In shadow the pairs are the same question answered twice. An answer counts as answered by its outcome; nobody has judged
whether it is right.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from router.evaluation.plots import BarChart, Bars
from router.evaluation.report import Report, Section, Table, with_interval
from router.rollout.figures import BUCKETS, Arm, Pairs, bucket_of, unpaired_lift
from router.rollout.shadow import is_answered
from standard.database.pool import connection
from standard.domain.answer import DecisionReason
from standard.domain.question import Route

if TYPE_CHECKING:
    import datetime as dt

    from router.journal.codec import EventCodec
    from router.journal.finished import FinishedRun
    from standard.database.pool import Pool

ARMS: Final = ("standard", "agentic", "held_back")
_BATCH: Final = 50


@dataclass(slots=True)
class Part:
    """Figures of some runs: all, or those of a bucket of probability."""

    arms: dict[str, Arm] = field(default_factory=lambda: {name: Arm() for name in ARMS})
    pairs: Pairs = field(default_factory=Pairs)

    def view(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "runs": sum(arm.runs for arm in self.arms.values()),
            "arms": {name: arm.view() for name, arm in self.arms.items()},
            "canary": unpaired_lift(self.arms["agentic"], self.arms["held_back"]),
            "shadow": self.pairs.view(),
        }


@dataclass(slots=True)
class RolloutFigures:
    """Everything that a report tells, gathered run by run."""

    whole: Part = field(default_factory=Part)
    buckets: list[Part] = field(default_factory=lambda: [Part() for _ in range(BUCKETS)])
    forced: int = 0
    without_probability: int = 0
    without_end: int = 0
    unreadable: int = 0

    def take(self, run: FinishedRun, aside: dict[str, Any] | None) -> None:
        """Count a run and its aside. Forced routes and dry runs say nothing of a rollout."""
        decision, answer = run.facts.decision, run.facts.answer
        if not run.readable:
            self.unreadable += 1
            return
        if decision is None or answer is None:
            self.without_end += 1
            return
        if answer.outcome is None:
            return
        if decision.reason is DecisionReason.FORCED:
            self.forced += 1
            return
        arm = "held_back" if decision.reason is DecisionReason.ROLLOUT else decision.route.value
        parts = [self.whole]
        if decision.complex_probability is None:
            self.without_probability += 1
        else:
            parts.append(self.buckets[bucket_of(decision.complex_probability)])
        answered = is_answered(answer.outcome)
        for part in parts:
            part.arms[arm].take(
                answered=answered,
                seconds=answer.timings.total_seconds,
                usd=answer.usage.cost_usd,
                tokens=answer.usage.billed_tokens,
                escalated=bool(run.facts.escalation),
            )
            if aside is not None and answer.route is Route.STANDARD:
                part.pairs.take(answered, aside)

    def view(self) -> dict[str, Any]:
        """As JSON values."""
        return self.whole.view() | {
            "forced": self.forced,
            "without_probability": self.without_probability,
            "without_end": self.without_end,
            "unreadable": self.unreadable,
            "buckets": [
                {"from": number / BUCKETS, "to": (number + 1) / BUCKETS} | part.view()
                for number, part in enumerate(self.buckets)
            ],
        }


async def rollout_figures(
    pool: Pool,
    codec: EventCodec,
    *,
    retention_days: float,
    since: dt.datetime | None = None,
    tenant: str = "",
    collection: str = "",
) -> RolloutFigures:
    """Gather the figures of the journal's ended runs; "" and None do not narrow. Raises DatabaseUnavailable."""
    from router.journal.finished import finished_runs

    figures = RolloutFigures()
    batch: list[FinishedRun] = []

    async def count() -> None:
        asides = await _asides(pool, [run.run_id for run in batch])
        for run in batch:
            figures.take(run, asides.get(run.run_id))
        batch.clear()

    runs = finished_runs(pool, codec, retention_days=retention_days, since=since, tenant=tenant, collection=collection)
    async with aclosing(runs) as found:
        async for run in found:
            batch.append(run)
            if len(batch) == _BATCH:
                await count()
    await count()
    return figures


async def _asides(pool: Pool, runs: list[int]) -> dict[int, dict[str, Any]]:
    async with connection(pool) as conn:
        cursor = await conn.execute("select run_id, answer - 'text' from shadow_answer where run_id = any(%s)", (runs,))
        return dict(await cursor.fetchall())


def rollout_report(results: dict[str, Any]) -> Report:
    """The report of results for people, with charts by bucket of probability."""
    arms, shadow, canary = results["arms"], results["shadow"], results["canary"]
    figures = ("runs", "answered", "escalated", "seconds_p50", "seconds_p95", "usd_mean", "tokens_mean")
    whole = Table(("arm", *figures), [(name, *(arms[name][key] for key in figures)) for name in ARMS], digits=4)
    counted = f"{results['runs']} runs, {results['without_probability']} of them without a probability"
    told = [
        f"{counted}; {results['forced']} more had a forced route.",
        "Answered is by outcome: nobody has judged whether the answers are right.",
    ]
    if canary is not None:
        lift = with_interval(canary["lift"], canary["lift_low"], canary["lift_high"])
        told.append(
            f"Canary: the agentic arm answered more often than the one held back by {lift}; it took"
            f" {canary['seconds_p50_more']:.3f} s (p50) and {canary['usd_mean_more']:.5f} US dollars (mean) more."
        )
    if shadow["pairs"]:
        lift = with_interval(shadow["lift"], shadow["lift_low"], shadow["lift_high"])
        told.append(
            f"Shadow: {shadow['pairs']} pairs ({shadow['failed']} asides failed), agreement {shadow['agreement']:.3f},"
            f" lift {lift}."
        )
    groups = [f"{bucket['from']:.1f}-{bucket['to']:.1f}" for bucket in results["buckets"]]
    by_bucket = Table(
        ("probability", "runs", "agentic", "held back", "pairs", "agreement", "lift", "standard p50 s", "aside p50 s"),
        [
            (
                group,
                bucket["runs"],
                bucket["arms"]["agentic"]["runs"],
                bucket["arms"]["held_back"]["runs"],
                bucket["shadow"]["pairs"],
                bucket["shadow"]["agreement"],
                bucket["shadow"]["lift"],
                bucket["arms"]["standard"]["seconds_p50"],
                bucket["shadow"]["aside"]["seconds_p50"],
            )
            for group, bucket in zip(groups, results["buckets"], strict=True)
        ],
    )
    return Report(
        "Rollout",
        [
            Section("Arms", tables=[whole]),
            Section("By probability", tables=[by_bucket], charts=_charts(results["buckets"], groups)),
        ],
        summary=told,
    )


def _charts(buckets: list[dict[str, Any]], groups: list[str]) -> list[BarChart]:
    def of(key: str) -> list[Bars]:
        return [
            *(Bars(name.replace("_", " "), [bucket["arms"][name][key] for bucket in buckets]) for name in ARMS),
            Bars("aside", [bucket["shadow"]["aside"][key] for bucket in buckets]),
        ]

    shadows = [bucket["shadow"] for bucket in buckets]
    lift = Bars(
        "lift",
        [each["lift"] for each in shadows],
        [each["lift_low"] for each in shadows],
        [each["lift_high"] for each in shadows],
    )
    agreement = Bars("agreement", [each["agreement"] for each in shadows])
    return [
        BarChart("runs", "Runs by probability", "runs", groups, of("runs"), None),
        BarChart("seconds", "Time by probability", "seconds, p50", groups, of("seconds_p50"), None),
        BarChart("usd", "Cost by probability", "US dollars, mean", groups, of("usd_mean"), None),
        BarChart("agreement", "Agreement of pairs", "share", groups, [agreement]),
        BarChart("lift", "Lift of the agentic route", "share of pairs", groups, [lift], (-1.0, 1.0), 0.0),
    ]
