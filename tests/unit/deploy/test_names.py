"""Each metric and label that a dashboard, a rule or a document names is one that the gateway has, and the other way."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from router.routing.outcomes import Verdict
from standard.domain.answer import DecisionReason, Outcome, StopReason
from standard.domain.question import Route
from tests.support.promql import Named, named_queries, panels, read, rules
from tests.support.registry import by_sample, registered
from tests.support.tools import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import StrEnum
    from pathlib import Path

SCRAPED = {"job", "instance", "namespace", "pod"}
"""Labels that Prometheus adds to a target's samples."""
QUERIES = named_queries()
RECORDED = {rule.name for rule in rules() if not rule.alert}
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").glob("*.md")])


def values(enum: type[StrEnum]) -> set[str]:
    return {each.value for each in enum}


CLOSED = {
    ("pointsman_routing_decisions_total", "decision"): values(Route),
    ("pointsman_routing_decisions_total", "reason"): values(DecisionReason),
    ("pointsman_routing_verdicts_total", "verdict"): values(Verdict),
    ("pointsman_answers_total", "route"): values(Route),
    ("pointsman_answers_total", "outcome"): values(Outcome),
    ("pointsman_answers_total", "stop_reason"): values(StopReason),
    ("pointsman_answer_seconds", "route"): values(Route),
    ("pointsman_tenant_requests_total", "route"): values(Route),
    ("pointsman_citations_total", "status"): {"kept", "moved", "dropped"},
    ("pointsman_agentic_passages_total", "kind"): {"new", "duplicate"},
    ("pointsman_dependency_up", "dependency"): {"database", "embedder", "classifier", "llm", "upstream", "redis"},
}


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.where)
def test_a_query_names_metrics_that_there_are(query: Named) -> None:
    for selector in query.selectors:
        assert selector.metric == "up" or selector.metric in by_sample() or selector.metric in RECORDED


def labels_of(query: Named) -> set[str]:
    known = set(SCRAPED)
    for selector in query.selectors:
        metric = by_sample().get(selector.metric)
        if metric is not None:
            known |= {*metric.labels, *(["le"] if metric.kind == "histogram" else [])}
        elif selector.metric in RECORDED:
            known |= {"slo", "route"}
    return known


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.where)
def test_a_query_names_labels_that_its_metrics_have(query: Named) -> None:
    assert query.grouped <= labels_of(query)
    for selector in query.selectors:
        metric = by_sample().get(selector.metric)
        if metric is None:
            continue
        for label, value, regex in selector.matchers:
            assert label in {*SCRAPED, *metric.labels} or (label == "le" and metric.kind == "histogram")
            if label == "le":
                assert value in metric.bounds, f"{metric.name} has no bucket {value}"
            allowed = CLOSED.get((metric.name, label))
            if allowed is not None:
                assert set(value.split("|") if regex else [value]) <= allowed


def test_what_legends_and_texts_show_are_labels_of_the_query() -> None:
    for panel in panels():
        for target in panel["targets"]:
            query = next(each for each in QUERIES if each.where == f"dashboard: {panel['title']}")
            shown = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
            assert shown <= labels_of(query), panel["title"]
    for rule in rules():
        shown = set(re.findall(r"\$labels\.(\w+)", " ".join(rule.annotations.values())))
        query = next(each for each in QUERIES if each.where == f"rule: {rule.name}")
        assert shown <= labels_of(query), rule.name


def test_each_rule_records_under_one_name_and_each_name_is_used() -> None:
    used = {selector.metric for query in QUERIES for selector in query.selectors}
    kubernetes = " ".join(path.read_text() for path in (ROOT / "deploy" / "kubernetes").glob("*.yaml"))
    unused = {name for name in RECORDED if name not in used and name not in kubernetes}
    assert unused == {"pointsman:answers:rate5m"} or not unused


def named_in(texts: Iterable[str]) -> set[str]:
    return {name for text in texts for name in re.findall(r"\b(?:pointsman|grpc_server)_[a-z_0-9]*[a-z0-9]\b", text)}


NO_METRICS = {"pointsman_reader"}
"""Names in documents that look like metrics and are none: a role of the database."""


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_document_names_metrics_that_there_are(path: Path) -> None:
    known = {*registered(), *by_sample(), *(name.removesuffix("_total") for name in registered()), *NO_METRICS}
    assert named_in([path.read_text()]) <= known


def test_every_metric_is_on_the_dashboard_and_in_the_operations_page() -> None:
    shown = {
        by_sample()[selector.metric].name
        for query in QUERIES
        for selector in query.selectors
        if query.where.startswith("dashboard") and selector.metric in by_sample()
    }
    # Each question has one message in and a few out: what these count is seen in calls and answers already.
    # Time and share of agentic runs come through recorded names.
    elsewhere = {"grpc_server_msg_received_total", "grpc_server_msg_sent_total", "grpc_server_started_total"}
    assert set(registered()) - shown == elsewhere
    table = (ROOT / "docs" / "operations.md").read_text()
    for metric in registered().values():
        labels = ", ".join(metric.labels) or "-"
        assert f"| `{metric.name}` | {metric.kind} | {labels} |" in table, f"{metric.name} is not in the table as it is"


def test_the_sizing_page_names_figures_that_bench_reports() -> None:
    sizing = (ROOT / "docs" / "operations.md").read_text().partition("## Sizing")[2]
    named = set(re.findall(r"\b[a-z]+_(?:[a-z0-9]+_)*(?:us|ms|mb|per_second)\b", sizing))
    assert len(named) >= 6
    results = json.loads((ROOT / "docs" / "evaluation" / "speed" / "results.json").read_text())
    assert named <= set(results["figures"])


def written_queries() -> list[Named]:
    """Queries that runbooks and the operations page show between backticks, read."""
    pages = (ROOT / "docs" / "operations.md", *sorted((ROOT / "docs" / "runbooks").glob("*.md")))
    return [
        read(f"{path.name}: {code}", code)
        for path in pages
        for code in re.findall(r"`([^`\n]+)`", path.read_text())
        if re.search(r"pointsman_|grpc_server_", code) and re.search(r"[({[]", code)
    ]


def test_queries_in_pages_can_be_run_as_they_are() -> None:
    queries = written_queries()
    assert len(queries) > 10
    for query in queries:
        for selector in query.selectors:
            assert selector.metric in by_sample() or selector.metric in RECORDED, query.where
            metric = by_sample().get(selector.metric)
            labels = {label for label, _, _ in selector.matchers}
            assert metric is None or labels <= {*SCRAPED, *metric.labels}, query.where
        assert query.grouped <= labels_of(query), query.where
