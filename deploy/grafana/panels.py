"""What the dashboard shows: rows that a person on call reads from the top, and what each panel asks of Prometheus.

`$S` in a query stands for the selector of the dashboard's variables. Times are percentiles of histograms; shares are
sums over sums. A test checks every metric and label against the gateway's registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["lines", "bars", "stat", "heatmap"]
SELECTOR: Final = 'job=~"$job", instance=~"$instance"'


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression and how its series are named."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; `width` in Grafana's 24 columns, `unit` one of Grafana's, `steps` the colours (from value, colour)."""

    title: str
    about: str
    unit: str
    queries: tuple[Query, ...]
    kind: Kind = "lines"
    width: int = 8
    top: float | None = None
    steps: tuple[tuple[float | None, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A row: a question and the panels that answer it."""

    title: str
    panels: tuple[Panel, ...]


def _quantiles(
    metric: str, by: str = "", legend: str = "", quantiles: tuple[float, ...] = (0.5, 0.95)
) -> tuple[Query, ...]:
    """Percentiles of a histogram, split by a label where one is named."""
    labels = f"{by}, le" if by else "le"
    name = legend or (f"{{{{{by}}}}} " if by else "")
    return tuple(
        Query(
            f"histogram_quantile({quantile}, sum by ({labels}) (rate({metric}_bucket{{$S}}[$__rate_interval])))",
            f"{name}p{quantile * 100:g}",
        )
        for quantile in quantiles
    )


def _rates(metric: str, by: str, matchers: str = "") -> tuple[Query, ...]:
    """Events a second by a label."""
    inner = f"$S, {matchers}" if matchers else "$S"
    return (Query(f"sum by ({by}) (rate({metric}{{{inner}}}[$__rate_interval]))", f"{{{{{by}}}}}"),)


def _share(part: str, whole: str, legend: str) -> Query:
    """The share of `part` in `whole`, both selectors with their metric."""
    return Query(f"sum(rate({part}[$__rate_interval])) / sum(rate({whole}[$__rate_interval]))", legend)


_GOOD_BAD: Final = ((None, "red"), (1.0, "green"))
_ANSWERING: Final = 'grpc_service="pointsman.v1.GatewayService", grpc_method=~"Answer|StreamAnswer|ResumeAnswer"'
_FAULTS: Final = "Unknown|Internal|Unavailable|DeadlineExceeded|ResourceExhausted|DataLoss"

ROWS: Final = (
    Row(
        "Is it up",
        (
            Panel(
                "Gateways up",
                "Share of the gateways that Prometheus can scrape. Below 1: PointsmanDown.",
                "percentunit",
                (Query("sum(up{$S}) / count(up{$S})"),),
                "stat",
                4,
                steps=_GOOD_BAD,
            ),
            Panel(
                "Dependencies",
                "1 where every gateway reaches the dependency. Without database or embedder nothing is answered; "
                "without llm or upstream answers are excerpts; without classifier every question takes the safe route.",
                "none",
                (Query("min by (dependency) (pointsman_dependency_up{$S})", "{{dependency}}"),),
                "stat",
                8,
                steps=_GOOD_BAD,
            ),
            Panel(
                "Canary",
                "1 when the last golden questions were answered from the documents that hold the answer; empty where "
                "no canary is set up.",
                "none",
                (Query("min(pointsman_canary_ok{$S})"),),
                "stat",
                4,
                steps=_GOOD_BAD,
            ),
            Panel(
                "Error budget burnt, last hour",
                "How many times faster than allowed the month's budget went, by service level. Above 14.4 somebody is "
                "woken.",
                "none",
                (
                    Query(
                        'pointsman:slo_errors:ratio1h{job=~"$job"} / on (slo) group_left () pointsman:slo_budget:ratio',
                        "{{slo}}",
                    ),
                ),
                "stat",
                8,
                steps=((None, "green"), (1.0, "yellow"), (6.0, "orange"), (14.4, "red")),
            ),
            Panel(
                "Calls by code",
                "Answering calls a second by how they ended. InvalidArgument and Canceled are callers' own.",
                "reqps",
                _rates("grpc_server_handled_total", "grpc_code", _ANSWERING),
                "bars",
            ),
            Panel(
                "HTTP requests by status",
                "Requests a second by status; client_gone went away before it was answered, broken broke off within "
                "its answer. Faults above 5%: PointsmanHttpErrors.",
                "reqps",
                _rates("pointsman_http_requests_total", "status", 'facade!="health"'),
                "bars",
            ),
            Panel(
                "Faults of the server",
                "Share of answering calls, and of HTTP requests, that ended in a fault of the server; of calls 0.1% is "
                "allowed over a month.",
                "percentunit",
                (
                    _share(
                        f'grpc_server_handled_total{{$S, {_ANSWERING}, grpc_code=~"{_FAULTS}"}}',
                        f"grpc_server_handled_total{{$S, {_ANSWERING}}}",
                        "gRPC",
                    ),
                    _share(
                        'pointsman_http_requests_total{$S, facade!="health", status=~"5..|broken"}',
                        'pointsman_http_requests_total{$S, facade!="health"}',
                        "HTTP",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Is it slow",
        (
            Panel(
                "First event",
                "From a question's arrival to the first event that its reader sees, mostly embedding and the first "
                "retrieval. 99% within 500 ms are promised.",
                "s",
                _quantiles("pointsman_first_event_seconds", quantiles=(0.5, 0.95, 0.99)),
                width=6,
            ),
            Panel(
                "Whole answer",
                "From arrival to the end. Promised: 95% of standard answers within 5 s, of agentic ones within 60 s.",
                "s",
                _quantiles("pointsman_answer_seconds", "route"),
                width=6,
            ),
            Panel(
                "Calls by method",
                "95th percentile of gRPC calls, all services.",
                "s",
                _quantiles("grpc_server_handling_seconds", "grpc_method", quantiles=(0.95,)),
                width=6,
            ),
            Panel(
                "HTTP requests by façade",
                "95th percentile from a request's head to the end of its answer, streams included.",
                "s",
                _quantiles("pointsman_http_request_seconds", "facade", quantiles=(0.95,)),
                width=6,
            ),
        ),
    ),
    Row(
        "Is routing right",
        (
            Panel(
                "Agentic share",
                "Share of first choices that are agentic, where the gateway was free to choose. Out of 2% to 60%: "
                "PointsmanAgenticShareOutOfBand.",
                "percentunit",
                (Query('pointsman:agentic_share:ratio1h{job=~"$job"}', "{{job}}"),),
                top=1.0,
            ),
            Panel(
                "Decisions by reason",
                "What decided. fallback means that the classifier did not speak.",
                "reqps",
                (
                    Query(
                        "sum by (decision, reason) (rate(pointsman_routing_decisions_total{$S}[$__rate_interval]))",
                        "{{decision}}, {{reason}}",
                    ),
                ),
                "bars",
            ),
            Panel(
                "Complex probability",
                "How many questions got which probability of needing the agentic route; the threshold cuts it.",
                "percentunit",
                (
                    Query(
                        "sum by (le) (increase(pointsman_routing_complex_probability_bucket{$S}[$__rate_interval]))",
                        "{{le}}",
                    ),
                ),
                "heatmap",
            ),
            Panel(
                "Escalations",
                "Standard answers a second that were handed to the agentic route, by reason. Each pays for both.",
                "reqps",
                _rates("pointsman_escalations_total", "reason"),
                width=6,
            ),
            Panel(
                "Verdicts",
                "Decisions judged afterwards: over = agentic in vain, under = standard where agentic was needed.",
                "percentunit",
                (
                    Query(
                        "sum by (verdict) (rate(pointsman_routing_verdicts_total{$S}[1h]))"
                        " / ignoring (verdict) group_left () sum(rate(pointsman_routing_verdicts_total{$S}[1h]))",
                        "{{verdict}}",
                    ),
                ),
                width=6,
                top=1.0,
            ),
            Panel(
                "Drift",
                "Population stability of the last questions against training. Above 0.1 look, above 0.25 closely.",
                "none",
                (Query("max by (signal) (pointsman_drift_psi{$S})", "{{signal}}"),),
                width=6,
            ),
            Panel(
                "Time to decide",
                "The decision alone, without embedding and retrieval.",
                "s",
                _quantiles("pointsman_routing_seconds", quantiles=(0.5, 0.99)),
                width=6,
            ),
        ),
    ),
    Row(
        "Are answers good",
        (
            Panel(
                "Outcomes",
                "Answers a second by route and outcome.",
                "reqps",
                (
                    Query(
                        "sum by (route, outcome) (rate(pointsman_answers_total{$S}[$__rate_interval]))",
                        "{{route}}, {{outcome}}",
                    ),
                ),
                "bars",
            ),
            Panel(
                "Why runs end",
                "Answers a second by stop reason. Budgets here mean that the caps are felt.",
                "reqps",
                _rates("pointsman_answers_total", "stop_reason"),
                "bars",
            ),
            Panel(
                "Citations",
                "Citations a second: kept, moved to the source that says it, dropped since none does.",
                "reqps",
                _rates("pointsman_citations_total", "status"),
            ),
        ),
    ),
    Row(
        "Is the loop healthy",
        (
            Panel(
                "Steps",
                "Steps of agentic runs. A creeping 95th percentile is money.",
                "none",
                _quantiles("pointsman_agentic_steps"),
                width=6,
            ),
            Panel(
                "Guard trips",
                "Refusals and stops a second by guard.",
                "reqps",
                _rates("pointsman_agentic_guard_trips_total", "guard"),
                "bars",
                6,
            ),
            Panel(
                "Duplicate passages",
                "Share of the passages found that the run had already. High: it searches in circles.",
                "percentunit",
                (
                    _share(
                        'pointsman_agentic_passages_total{$S, kind="duplicate"}',
                        "pointsman_agentic_passages_total{$S}",
                        "duplicates",
                    ),
                ),
                width=6,
                top=1.0,
            ),
            Panel(
                "Sufficiency",
                "Judged scores of the evidence.",
                "percentunit",
                _quantiles("pointsman_agentic_sufficiency_score", quantiles=(0.1, 0.5, 0.9)),
                width=6,
                top=1.0,
            ),
            Panel(
                "Actions",
                "What the controllers do, actions a second.",
                "reqps",
                _rates("pointsman_agentic_actions_total", "action"),
                "bars",
            ),
            Panel(
                "Compressions",
                "Contexts that a record took the place of, a second.",
                "ops",
                (Query("sum(rate(pointsman_agentic_compressions_total{$S}[$__rate_interval]))", "compressions"),),
            ),
            Panel(
                "Context after compression",
                "Tokens that were left.",
                "none",
                _quantiles("pointsman_agentic_context_tokens"),
            ),
        ),
    ),
    Row(
        "Retrieval and sandbox",
        (
            Panel(
                "Stages",
                "95th percentile of each stage, the embedding included. Above 500 ms: PointsmanRetrievalSlow.",
                "s",
                _quantiles("pointsman_retrieval_seconds", "stage", quantiles=(0.95,)),
                width=12,
            ),
            Panel(
                "Passages that address the model",
                "What the scan acted on, by technique and action. A surge may be an attack.",
                "reqps",
                (
                    Query(
                        "sum by (technique, action) (rate(pointsman_injection_flags_total{$S}[$__rate_interval]))",
                        "{{technique}}, {{action}}",
                    ),
                ),
                "bars",
                12,
            ),
        ),
    ),
    Row(
        "Language model",
        (
            Panel(
                "First token",
                "From a question's arrival to the first word of its answer.",
                "s",
                _quantiles("pointsman_first_token_seconds", "route"),
            ),
            Panel(
                "Calls",
                "95th percentile of calls, waiting and repeats included, by purpose.",
                "s",
                _quantiles("pointsman_llm_request_seconds", "purpose", quantiles=(0.95,)),
            ),
            Panel(
                "Failed attempts",
                "Attempts a second that failed, by kind; each may be repeated.",
                "reqps",
                _rates("pointsman_llm_errors_total", "kind"),
                "bars",
            ),
            Panel(
                "Tokens",
                "Billed tokens a second by direction and purpose.",
                "none",
                (
                    Query(
                        "sum by (direction, purpose) (rate(pointsman_llm_tokens_total{$S}[$__rate_interval]))",
                        "{{direction}}, {{purpose}}",
                    ),
                ),
                "bars",
                12,
            ),
            Panel(
                "Cost an hour",
                "US dollars an hour at the present pace, by route, by the price table in llm.prices.",
                "currencyUSD",
                (
                    Query(
                        "3600 * sum by (route) (rate(pointsman_llm_cost_usd_total{$S}[$__rate_interval]))", "{{route}}"
                    ),
                ),
                width=12,
            ),
        ),
    ),
    Row(
        "Tenants",
        (
            Panel(
                "Busiest tenants",
                "Answers a second of the ten busiest tenants; those beyond the busiest fifty are counted as other.",
                "reqps",
                (
                    Query(
                        "topk(10, sum by (tenant) (rate(pointsman_tenant_requests_total{$S}[$__rate_interval])))",
                        "{{tenant}}",
                    ),
                ),
                width=12,
            ),
            Panel(
                "Agentic share by tenant",
                "Whose questions take the long way.",
                "percentunit",
                (
                    Query(
                        'topk(10, sum by (tenant) (rate(pointsman_tenant_requests_total{$S, route="agentic"}[1h]))'
                        " / sum by (tenant) (rate(pointsman_tenant_requests_total{$S}[1h])))",
                        "{{tenant}}",
                    ),
                ),
                width=12,
                top=1.0,
            ),
        ),
    ),
    Row(
        "Saturation",
        (
            Panel(
                "Answers in flight",
                "Questions being worked on, by gateway; server.max_inflight is the bound.",
                "none",
                (Query("pointsman_inflight_requests{$S}", "{{instance}}"),),
            ),
            Panel(
                "Wait for a place",
                "95th percentile by gateway. Above 1 s: PointsmanQueues; the autoscaler goes by it as well.",
                "s",
                _quantiles("pointsman_queue_seconds", "instance", quantiles=(0.95,)),
            ),
            Panel(
                "Requests refused, spans lost",
                "Requests a second refused for lack of room, by reason; and spans of traces that the collector did not "
                "get, since it was away (failed) or the queue before it was full (dropped).",
                "reqps",
                (
                    *_rates("pointsman_shed_requests_total", "reason"),
                    Query(
                        'sum(rate(pointsman_trace_spans_total{$S, outcome=~"failed|dropped"}[$__rate_interval]))',
                        "spans lost",
                    ),
                ),
                "bars",
            ),
        ),
    ),
)
"""The rows, top down."""
