"""Queries in dashboards and rules, read by a parser: which metrics and labels do they name?"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import promql_parser
import yaml

from tests.support.tools import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "pointsman.json"


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric's name and its matchers: (label, value, whether the value is a regular expression)."""

    metric: str
    matchers: tuple[tuple[str, str, bool], ...]


@dataclass(frozen=True, slots=True)
class Named:
    """A query, where it is written, and what it names. `grouped`: labels in by, on, ignoring and group_left."""

    where: str
    expr: str
    selectors: tuple[Selector, ...]
    grouped: frozenset[str]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of deploy/prometheus/rules."""

    name: str
    alert: bool
    expr: str
    labels: dict[str, str]
    annotations: dict[str, str]


def rules() -> list[Rule]:
    """All of them."""
    found: list[Rule] = []
    for path in sorted((PROMETHEUS / "rules").glob("*.yml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            found += [
                Rule(
                    rule.get("alert") or rule["record"],
                    "alert" in rule,
                    rule["expr"],
                    rule.get("labels", {}),
                    rule.get("annotations", {}),
                )
                for rule in group["rules"]
            ]
    return found


def panels() -> list[dict[str, Any]]:
    """The dashboard's panels, rows left out."""
    board = json.loads(DASHBOARD.read_text())
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def dashboard_queries() -> list[tuple[str, str]]:
    """(panel's title, query) with Grafana's variables put in, as Prometheus gets them."""
    found = [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
    put_in = {"$__rate_interval": "1m", "$job": ".+", "$instance": ".+"}
    return [(title, re.sub(r"\$\w+", lambda match: put_in[match[0]], expr)) for title, expr in found]


def named_queries() -> list[Named]:
    """Every query of the dashboard and the rules, read."""
    written = [(f"dashboard: {title}", expr) for title, expr in dashboard_queries()]
    written += [(f"rule: {rule.name}", rule.expr) for rule in rules()]
    return [read(where, expr) for where, expr in written]


def read(where: str, expr: str) -> Named:
    """Parse a query and gather what it names; ValueError for one that is none."""
    selectors: list[Selector] = []
    grouped: set[str] = set()
    for node in _nodes(promql_parser.parse(expr)):
        if isinstance(node, promql_parser.VectorSelector):
            matchers = tuple((each.name, each.value, "Re" in str(each.op)) for each in node.matchers.matchers)
            selectors.append(Selector(node.name or "", matchers))
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            grouped |= set(node.modifier.labels)
        elif isinstance(node, promql_parser.BinaryExpr) and node.modifier is not None:
            grouped |= set(node.modifier.matching.labels if node.modifier.matching else ())
            grouped |= set(node.modifier.group_labels or ())
    return Named(where, expr, tuple(selectors), frozenset(grouped))


def _nodes(expr: promql_parser.Expr) -> Iterator[promql_parser.Expr]:
    found: list[promql_parser.Expr] = []

    def visit(node: promql_parser.Expr) -> bool:
        found.append(node)
        return True

    promql_parser.walk(expr, visit)
    yield from found
