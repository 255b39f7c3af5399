"""Rows on what it does: routing, answers, the loop, retrieval and sandbox, language model."""

from __future__ import annotations

from typing import Final

from deploy.grafana.panel import Panel, Query, Row, quantiles_of, rates, share

ROUTING: Final = Row(
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
            rates("pointsman_escalations_total", "reason"),
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
            quantiles_of("pointsman_routing_seconds", quantiles=(0.5, 0.99)),
            width=6,
        ),
    ),
)
ANSWERS: Final = Row(
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
            rates("pointsman_answers_total", "stop_reason"),
            "bars",
        ),
        Panel(
            "Citations",
            "Citations a second: kept, moved to the source that says it, dropped since none does.",
            "reqps",
            rates("pointsman_citations_total", "status"),
        ),
    ),
)
LOOP: Final = Row(
    "Is the loop healthy",
    (
        Panel(
            "Steps",
            "Steps of agentic runs. A creeping 95th percentile is money.",
            "none",
            quantiles_of("pointsman_agentic_steps"),
            width=6,
        ),
        Panel(
            "Guard trips",
            "Refusals and stops a second by guard.",
            "reqps",
            rates("pointsman_agentic_guard_trips_total", "guard"),
            "bars",
            6,
        ),
        Panel(
            "Duplicate passages",
            "Share of the passages found that the run had already. High: it searches in circles.",
            "percentunit",
            (
                share(
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
            quantiles_of("pointsman_agentic_sufficiency_score", quantiles=(0.1, 0.5, 0.9)),
            width=6,
            top=1.0,
        ),
        Panel(
            "Actions",
            "What the controllers do, actions a second.",
            "reqps",
            rates("pointsman_agentic_actions_total", "action"),
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
            quantiles_of("pointsman_agentic_context_tokens"),
        ),
    ),
)
RETRIEVAL: Final = Row(
    "Retrieval and sandbox",
    (
        Panel(
            "Stages",
            "95th percentile of each stage, the embedding included. Above 500 ms: PointsmanRetrievalSlow.",
            "s",
            quantiles_of("pointsman_retrieval_seconds", "stage", quantiles=(0.95,)),
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
)
MODEL: Final = Row(
    "Language model",
    (
        Panel(
            "First token",
            "From a question's arrival to the first word of its answer.",
            "s",
            quantiles_of("pointsman_first_token_seconds", "route"),
        ),
        Panel(
            "Calls",
            "95th percentile of calls, waiting and repeats included, by purpose.",
            "s",
            quantiles_of("pointsman_llm_request_seconds", "purpose", quantiles=(0.95,)),
        ),
        Panel(
            "Failed attempts",
            "Attempts a second that failed, by kind; each may be repeated.",
            "reqps",
            rates("pointsman_llm_errors_total", "kind"),
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
            (Query("3600 * sum by (route) (rate(pointsman_llm_cost_usd_total{$S}[$__rate_interval]))", "{{route}}"),),
            width=12,
        ),
    ),
)
