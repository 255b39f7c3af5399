"""Events of runs as metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from standard.domain.event import (
    CitationMade,
    ContextCompressed,
    GuardTripped,
    PassagesFound,
    PassagesScreened,
    QueryIssued,
    SufficiencyJudged,
)

if TYPE_CHECKING:
    from router.telemetry.metrics import Metrics
    from standard.domain.event import EventBody


def count_event(metrics: Metrics, body: EventBody) -> None:
    """Count what an event tells."""
    match body:
        case QueryIssued():
            metrics.actions.labels(body.action).inc()
        case PassagesFound():
            metrics.found["new"].inc(len(body.passages))
            metrics.found["duplicate"].inc(body.duplicates)
        case PassagesScreened():
            for finding in body.findings:
                for technique in finding.techniques or ("unknown",):
                    metrics.injection_flags.labels(technique, finding.verdict).inc()
        case GuardTripped():
            metrics.guard_trips.labels(body.guard).inc()
        case SufficiencyJudged():
            metrics.sufficiency.observe(body.score)
        case ContextCompressed():
            metrics.compressions.inc()
            metrics.context_tokens.observe(body.tokens_after)
        case CitationMade():
            metrics.cited[body.citation.moved].inc()
        case _:
            pass
