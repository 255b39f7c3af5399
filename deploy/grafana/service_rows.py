"""Rows on the service as a whole: is it up, is it slow, whom it serves, what it has left."""

from __future__ import annotations

from typing import Final

from deploy.grafana.panel import GOOD_BAD, Panel, Query, Row, quantiles_of, rates, share

_ANSWERING: Final = 'grpc_service="pointsman.v1.GatewayService", grpc_method=~"Answer|StreamAnswer|ResumeAnswer"'
_FAULTS: Final = "Unknown|Internal|Unavailable|DeadlineExceeded|ResourceExhausted|DataLoss"

UP: Final = Row(
    "Is it up",
    (
        Panel(
            "Gateways up",
            "Share of the gateways that Prometheus can scrape. Below 1: PointsmanDown.",
            "percentunit",
            (Query("sum(up{$S}) / count(up{$S})"),),
            "stat",
            4,
            steps=GOOD_BAD,
        ),
        Panel(
            "Dependencies",
            "1 where every gateway reaches the dependency. Without database or embedder nothing is answered; "
            "without llm or upstream answers are excerpts; without classifier every question takes the safe route.",
            "none",
            (Query("min by (dependency) (pointsman_dependency_up{$S})", "{{dependency}}"),),
            "stat",
            8,
            steps=GOOD_BAD,
        ),
        Panel(
            "Canary",
            "1 when the last golden questions were answered from the documents that hold the answer; empty where "
            "no canary is set up.",
            "none",
            (Query("min(pointsman_canary_ok{$S})"),),
            "stat",
            4,
            steps=GOOD_BAD,
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
            rates("grpc_server_handled_total", "grpc_code", _ANSWERING),
            "bars",
        ),
        Panel(
            "HTTP requests by status",
            "Requests a second by status; client_gone went away before it was answered, broken broke off within "
            "its answer. Faults above 5%: PointsmanHttpErrors.",
            "reqps",
            rates("pointsman_http_requests_total", "status", 'facade!="health"'),
            "bars",
        ),
        Panel(
            "Faults of the server",
            "Share of answering calls, and of HTTP requests, that ended in a fault of the server; of calls 0.1% is "
            "allowed over a month.",
            "percentunit",
            (
                share(
                    f'grpc_server_handled_total{{$S, {_ANSWERING}, grpc_code=~"{_FAULTS}"}}',
                    f"grpc_server_handled_total{{$S, {_ANSWERING}}}",
                    "gRPC",
                ),
                share(
                    'pointsman_http_requests_total{$S, facade!="health", status=~"5..|broken"}',
                    'pointsman_http_requests_total{$S, facade!="health"}',
                    "HTTP",
                ),
            ),
        ),
    ),
)
SLOW: Final = Row(
    "Is it slow",
    (
        Panel(
            "First event",
            "From a question's arrival to the first event that its reader sees, mostly embedding and the first "
            "retrieval. 99% within 500 ms are promised.",
            "s",
            quantiles_of("pointsman_first_event_seconds", quantiles=(0.5, 0.95, 0.99)),
            width=6,
        ),
        Panel(
            "Whole answer",
            "From arrival to the end. Promised: 95% of standard answers within 5 s, of agentic ones within 60 s.",
            "s",
            quantiles_of("pointsman_answer_seconds", "route"),
            width=6,
        ),
        Panel(
            "Calls by method",
            "95th percentile of gRPC calls, all services.",
            "s",
            quantiles_of("grpc_server_handling_seconds", "grpc_method", quantiles=(0.95,)),
            width=6,
        ),
        Panel(
            "HTTP requests by façade",
            "95th percentile from a request's head to the end of its answer, streams included.",
            "s",
            quantiles_of("pointsman_http_request_seconds", "facade", quantiles=(0.95,)),
            width=6,
        ),
    ),
)
TENANTS: Final = Row(
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
)
SATURATION: Final = Row(
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
            quantiles_of("pointsman_queue_seconds", "instance", quantiles=(0.95,)),
        ),
        Panel(
            "Requests refused, spans lost",
            "Requests a second refused for lack of room, by reason; and spans of traces that the collector did not "
            "get, since it was away (failed) or the queue before it was full (dropped).",
            "reqps",
            (
                *rates("pointsman_shed_requests_total", "reason"),
                Query(
                    'sum(rate(pointsman_trace_spans_total{$S, outcome=~"failed|dropped"}[$__rate_interval]))',
                    "spans lost",
                ),
            ),
            "bars",
        ),
    ),
)
