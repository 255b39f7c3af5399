"""Calls of the language model as metrics, and on the account of the run that makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.access.limits import spent_now
from standard.spans import exemplar

if TYPE_CHECKING:
    from router.telemetry.metrics import Metrics
    from standard.llm.observer import LlmCall
    from standard.llm.protocol import Purpose


class LlmMetrics:
    """An LlmObserver that counts."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def call_ended(self, call: LlmCall) -> None:
        """Count a call's time and tokens."""
        purpose = call.purpose.value
        self._metrics.llm_seconds.labels(purpose).observe(call.seconds, exemplar())
        usage = call.usage
        spent = spent_now.get()
        if spent is not None:
            spent.usage += usage
        self._metrics.llm_tokens.labels("input", purpose).inc(max(usage.input_tokens - usage.cached_tokens, 0))
        self._metrics.llm_tokens.labels("cached", purpose).inc(usage.cached_tokens)
        self._metrics.llm_tokens.labels("output", purpose).inc(usage.output_tokens)

    def attempt_failed(self, purpose: Purpose, kind: str) -> None:  # noqa: ARG002 - the label is the kind alone
        """Count a failed attempt."""
        self._metrics.llm_errors.labels(kind).inc()
