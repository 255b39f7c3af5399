"""Every metric, by the names that dashboards rely on.

Times are seconds; label values are closed lists. One `Metrics` object belongs to one registry and one process; children
of labelled metrics that lie on the hot path are looked up once and kept. What is measured of a call that is traced
carries the ids of its span as an exemplar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from router.telemetry.tenants import BusiestTenants
from standard.domain.question import Route
from standard.spans import exemplar

if TYPE_CHECKING:
    from standard.domain.answer import Answer, Decision
    from standard.domain.passage import SearchResult

_OVERHEAD_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_ANSWER_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
_FRACTION_BUCKETS: Final = tuple(step / 20 for step in range(1, 21))
_STEP_BUCKETS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20)
_TOKEN_BUCKETS: Final = (128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)


class Metrics:
    """The metrics of one process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry(auto_describe=True)

        def counter(name: str, what: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(name, what, labels, registry=self.registry)

        def gauge(name: str, what: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(name, what, labels, registry=self.registry)

        def histogram(name: str, what: str, buckets: tuple[float, ...], labels: tuple[str, ...] = ()) -> Histogram:
            return Histogram(name, what, labels, registry=self.registry, buckets=buckets)

        grpc = ("grpc_type", "grpc_service", "grpc_method")
        self.grpc_started = counter("grpc_server_started_total", "RPCs started.", grpc)
        self.grpc_handled = counter("grpc_server_handled_total", "RPCs completed, by code.", (*grpc, "grpc_code"))
        self.grpc_seconds = histogram("grpc_server_handling_seconds", "Time of RPCs.", _ANSWER_BUCKETS, grpc)
        self.grpc_received = counter("grpc_server_msg_received_total", "Messages received.", grpc)
        self.grpc_sent = counter("grpc_server_msg_sent_total", "Messages sent.", grpc)

        http = ("facade", "path", "method")
        self.http_requests = counter(
            "pointsman_http_requests_total", "HTTP requests by how they ended.", (*http, "status")
        )
        self.http_seconds = histogram("pointsman_http_request_seconds", "Time of HTTP requests.", _ANSWER_BUCKETS, http)

        self.decisions = counter("pointsman_routing_decisions_total", "First choices of route.", ("decision", "reason"))
        self.routing_seconds = histogram("pointsman_routing_seconds", "Time to decide.", _OVERHEAD_BUCKETS)
        self.probability = histogram(
            "pointsman_routing_complex_probability", "What the threshold is compared with.", _FRACTION_BUCKETS
        )
        self.verdicts = counter("pointsman_routing_verdicts_total", "Decisions judged by outcome.", ("verdict",))
        self.escalations = counter("pointsman_escalations_total", "Standard answers handed over.", ("reason",))
        self.answers = counter("pointsman_answers_total", "Answers.", ("route", "outcome", "stop_reason"))
        self.answer_seconds = histogram("pointsman_answer_seconds", "Arrival to end.", _ANSWER_BUCKETS, ("route",))
        self.first_event_seconds = histogram(
            "pointsman_first_event_seconds", "Arrival to first event.", _ANSWER_BUCKETS, ("route",)
        )
        self.first_token_seconds = histogram(
            "pointsman_first_token_seconds", "Arrival to first token.", _ANSWER_BUCKETS, ("route",)
        )
        self.steps = histogram("pointsman_agentic_steps", "Steps of agentic runs.", _STEP_BUCKETS)
        self.actions = counter("pointsman_agentic_actions_total", "Actions of agentic runs.", ("action",))
        self.passages = counter("pointsman_agentic_passages_total", "Passages that actions brought.", ("kind",))
        self.guard_trips = counter("pointsman_agentic_guard_trips_total", "Refusals and stops by guards.", ("guard",))
        self.sufficiency = histogram("pointsman_agentic_sufficiency_score", "Judged scores.", _FRACTION_BUCKETS)
        self.compressions = counter("pointsman_agentic_compressions_total", "Contexts compressed.")
        self.context_tokens = histogram("pointsman_agentic_context_tokens", "Context size.", _TOKEN_BUCKETS)
        self.retrieval_seconds = histogram(
            "pointsman_retrieval_seconds", "Stages of retrieval.", _OVERHEAD_BUCKETS, ("stage",)
        )
        self.llm_tokens = counter("pointsman_llm_tokens_total", "Billed tokens.", ("direction", "purpose"))
        self.llm_cost = counter("pointsman_llm_cost_usd_total", "US dollars by the price table.", ("route",))
        self.llm_seconds = histogram("pointsman_llm_request_seconds", "LLM calls.", _ANSWER_BUCKETS, ("purpose",))
        self.llm_errors = counter("pointsman_llm_errors_total", "LLM calls that failed.", ("kind",))
        self.injection_flags = counter(
            "pointsman_injection_flags_total", "Passages that the scan acted on.", ("technique", "action")
        )
        self.citations = counter("pointsman_citations_total", "Citations by what became of them.", ("status",))
        self.tenant_requests = counter("pointsman_tenant_requests_total", "Answers by tenant.", ("tenant", "route"))
        self.inflight = gauge("pointsman_inflight_requests", "Answers being worked on.")
        self.shed = counter("pointsman_shed_requests_total", "Requests refused under load.", ("reason",))
        self.dependency_up = gauge("pointsman_dependency_up", "1 where a dependency answers.", ("dependency",))
        self.queue_seconds = histogram("pointsman_queue_seconds", "Wait for a place.", _OVERHEAD_BUCKETS)
        self.drift = gauge("pointsman_drift_psi", "Population stability against training.", ("signal",))
        self.canary_ok = gauge("pointsman_canary_ok", "1 when the last golden questions passed; NaN before the first.")
        self.canary_ok.set(float("nan"))
        self.trace_spans = counter("pointsman_trace_spans_total", "Spans by what became of them.", ("outcome",))

        self._stages = {
            stage: self.retrieval_seconds.labels(stage) for stage in ("embed", "dense", "lexical", "fuse", "rerank")
        }
        self._busiest = BusiestTenants()
        self._tenants: dict[tuple[str, str], Counter] = {}
        self.cited = {moved: self.citations.labels("moved" if moved else "kept") for moved in (False, True)}
        self.found = {kind: self.passages.labels(kind) for kind in ("new", "duplicate")}
        self._decisions: dict[tuple[str, str], Counter] = {}
        self._answers: dict[tuple[str, str, str], Counter] = {}
        self._answer_seconds = {route.value: self.answer_seconds.labels(route.value) for route in Route}
        self._first_token_seconds = {route.value: self.first_token_seconds.labels(route.value) for route in Route}
        self._first_event_seconds = {route.value: self.first_event_seconds.labels(route.value) for route in Route}

    def _count_tenant(self, tenant: str, route: str) -> None:
        label, lost = self._busiest.label_of(tenant)
        for one in Route if lost else ():
            self.tenant_requests.remove(lost, one.value)
            self._tenants.pop((lost, one.value), None)
        counted = self._tenants.get((label, route))
        if counted is None:
            counted = self._tenants[label, route] = self.tenant_requests.labels(label, route)
        counted.inc()

    def decided(self, decision: Decision, seconds: float) -> None:
        """Count a first choice of route."""
        chosen = (decision.route.value, decision.reason.value)
        counted = self._decisions.get(chosen)
        if counted is None:
            counted = self._decisions[chosen] = self.decisions.labels(*chosen)
        counted.inc()
        self.routing_seconds.observe(seconds, exemplar())
        if decision.complex_probability is not None:
            self.probability.observe(decision.complex_probability)

    def first_event(self, route: str, seconds: float) -> None:
        """Count the time until a run's readers saw something of it."""
        self._first_event_seconds[route].observe(seconds, exemplar())

    def embedded(self, seconds: float) -> None:
        """Count the embedding of a question."""
        self._stages["embed"].observe(seconds, exemplar())

    def retrieved(self, result: SearchResult) -> None:
        """Count the stages of one retrieval that ran."""
        seconds, traced = result.seconds, exemplar()
        for stage in ("dense", "lexical", "fuse", "rerank"):
            value: float = getattr(seconds, stage)
            if value > 0.0:
                self._stages[stage].observe(value, traced)

    def answered(self, answer: Answer, tenant: str) -> None:
        """Count a finished answer; dry runs are none."""
        if answer.outcome is None or answer.stop_reason is None:
            return
        route = answer.route.value
        ended = (route, answer.outcome.value, answer.stop_reason.value)
        counted = self._answers.get(ended)
        if counted is None:
            counted = self._answers[ended] = self.answers.labels(*ended)
        counted.inc()
        traced = exemplar()
        self._answer_seconds[route].observe(answer.timings.total_seconds, traced)
        if answer.timings.first_token_seconds > 0.0:
            self._first_token_seconds[route].observe(answer.timings.first_token_seconds, traced)
        self._count_tenant(tenant, route)
        if answer.usage.cost_usd > 0.0:
            self.llm_cost.labels(route).inc(answer.usage.cost_usd)
        if answer.route.value == "agentic":
            self.steps.observe(answer.steps)
