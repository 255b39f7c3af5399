"""Make the Grafana dashboard from `panels`: `python -m deploy.grafana.build`, or with `--check` to compare alone.

The JSON is committed, so that Grafana's provisioning takes it as it is; a test runs the comparison.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import prometheus as prometheus_models

from deploy.grafana.panel import SELECTOR
from deploy.grafana.panels import ROWS

if TYPE_CHECKING:
    from deploy.grafana.panel import Panel, Query

DASHBOARD: Final = Path(__file__).resolve().parent / "dashboards" / "pointsman.json"
_SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_HEIGHT: Final = {"stat": 4, "lines": 8, "bars": 8, "heatmap": 8}


def _target(query: Query, number: int, *, kind: str) -> prometheus.Dataquery:
    target = (
        prometheus.Dataquery()
        .expr(query.expr.replace("$S", SELECTOR))
        .legend_format(query.legend or "__auto")
        .ref_id(chr(ord("A") + number))
        .datasource(_SOURCE)
    )
    if kind == "stat":
        return target.instant()
    if kind == "heatmap":
        return target.range().format(prometheus_models.PromQueryFormat.HEATMAP)
    return target.range().exemplar(exemplar="_bucket" in query.expr)


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = panel.steps or ((None, "green"),)
    return (
        dashboard.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=value, color=color) for value, color in steps])
    )


def _panel(panel: Panel) -> timeseries.Panel | stat.Panel | heatmap.Panel:
    built: timeseries.Panel | stat.Panel | heatmap.Panel
    if panel.kind == "stat":
        built = (
            stat.Panel()
            .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
            .color_mode(common_models.BigValueColorMode.BACKGROUND)
            .graph_mode(common_models.BigValueGraphMode.NONE)
        )
    elif panel.kind == "heatmap":
        built = (
            heatmap.Panel()
            .calculate(calculate=False)
            .color(heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME).scheme("Blues"))
            .y_axis(heatmap.YAxisConfig().unit(panel.unit))
        )
    else:
        built = timeseries.Panel().legend(
            common.VizLegendOptions()
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
        )
        built = built.min(0)
        if panel.kind == "bars":
            built = (
                built.draw_style(common_models.GraphDrawStyle.BARS)
                .fill_opacity(60)
                .stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
            )
        if panel.top is not None:
            built = built.max(panel.top)
    built = built.title(panel.title).description(panel.about).unit(panel.unit).datasource(_SOURCE)
    built = built.thresholds(_thresholds(panel)).no_value("no data").span(panel.width).height(_HEIGHT[panel.kind])
    for number, query in enumerate(panel.queries):
        built = built.with_target(_target(query, number, kind=panel.kind))
    return built


def _variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(_SOURCE)
        .query(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".+")
    )


def build() -> dict[str, Any]:
    """The dashboard as Grafana takes it."""
    board = (
        dashboard.Dashboard("pointsman")
        .uid("pointsman")
        .description(
            "Reads top down: is it up, is it slow, is routing right, what does it cost. Made by deploy/grafana."
        )
        .tags(["pointsman", "rag"])
        .time("now-3h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_variable("job", "Job", "label_values(pointsman_inflight_requests, job)"))
        .with_variable(
            _variable("instance", "Instance", 'label_values(pointsman_inflight_requests{job=~"$job"}, instance)')
        )
    )
    numbers = itertools.count(1)
    for row in ROWS:  # the builder lays panels from the left, in lines of 24 columns
        board = board.with_row(dashboard.Row(row.title).id(next(numbers)))
        for panel in row.panels:
            board = board.with_panel(_panel(panel).id(next(numbers)))
    made: dict[str, Any] = json.loads(json.dumps(board.build(), cls=JSONEncoder))
    return made


def rendered() -> str:
    """The committed file's text."""
    return json.dumps(build(), indent=1, sort_keys=True) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the dashboard, or compare it with its source under `--check`; 1 when that finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the dashboard is out of date")
    text = rendered()
    if not parser.parse_args(arguments).check:
        DASHBOARD.parent.mkdir(parents=True, exist_ok=True)
        DASHBOARD.write_text(text)
        return 0
    if DASHBOARD.is_file() and DASHBOARD.read_text() == text:
        return 0
    sys.stderr.write(f"{DASHBOARD} is out of date; run `make dashboards`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
