"""Charts of an evaluation as SVG: described as data, drawn without a display and without matplotlib's global state.

matplotlib comes with the extra `train` and is imported when a chart is drawn; `require_matplotlib` says beforehand
whether it is there, so that nobody waits for a measurement whose charts cannot be made. The same chart gives the same
bytes, so that a report can be kept under version control.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from standard.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

SIZE = (6.4, 4.2)
"""Inches."""
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Told apart by people who do not see all colours: Okabe and Ito, "Color universal design", 2008."""
_STYLES = {"main": "-", "reference": "--", "bound": ":"}


@dataclass(frozen=True, slots=True)
class Line:
    """Points joined by a line; `low` and `high` (parallel to `y`) shade its interval.

    `kind`: main, reference (chance, what is ideal: dashed grey) or bound (an oracle: dotted black). `marked` shows the
    points themselves.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    kind: str = "main"
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    marked: bool = False


@dataclass(frozen=True, slots=True)
class LineChart:
    """Lines over common axes; `at` draws a vertical rule there (a threshold). Limits are (low, high), None: as needed.

    `name` is the file's, without its ending.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    x_limits: tuple[float, float] | None = (0.0, 1.0)
    y_limits: tuple[float, float] | None = (0.0, 1.0)
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """One bar a group; None where there is no figure. `low` and `high`, parallel to `values`, are intervals."""

    name: str
    values: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()


@dataclass(frozen=True, slots=True)
class BarChart:
    """Series of bars side by side in groups; `at` draws a rule across (an aim, or chance)."""

    name: str
    title: str
    value_label: str
    groups: Sequence[str]
    series: Sequence[Bars]
    limits: tuple[float, float] | None = (0.0, 1.0)
    at: float | None = None


Chart: TypeAlias = LineChart | BarChart


def require_matplotlib() -> None:
    """Raise FailedPrecondition where charts cannot be drawn; imports nothing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise FailedPrecondition("a report with charts needs matplotlib: pip install 'pointsman[train]'")


def draw(chart: Chart, path: Path) -> None:
    """Draw a chart as SVG to `path`. Raises FailedPrecondition without matplotlib, OSError where it cannot write."""
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # Text stays text, ids are the same in every run: small files, and differences that can be read.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": chart.name, "font.size": 9.0}):
        figure = Figure(figsize=SIZE, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        if isinstance(chart, LineChart):
            _lines(axes, chart)
        else:
            _bars(axes, chart)
            if len(chart.series) > 1:
                figure.legend(loc="outside lower center", ncols=len(chart.series), frameon=False)
        axes.set_title(_plain(chart.title))
        axes.grid(visible=True, linewidth=0.4, alpha=0.5)
        axes.set_axisbelow(True)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _lines(axes: Axes, chart: LineChart) -> None:
    colours = iter(_COLOURS * (1 + len(chart.lines) // len(_COLOURS)))
    for line in chart.lines:
        colour = {"reference": "#777777", "bound": "#000000"}.get(line.kind) or next(colours)
        style = _STYLES.get(line.kind, "-")
        axes.plot(line.x, line.y, style, label=_plain(line.name), color=colour, marker="o" if line.marked else None)
        if line.low and line.high:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0.0)
    if chart.at is not None:
        axes.axvline(chart.at, color="#777777", linewidth=0.8, linestyle="-.")
    axes.set_xlabel(_plain(chart.x_label))
    axes.set_ylabel(_plain(chart.y_label))
    if chart.x_limits:
        axes.set_xlim(*chart.x_limits)
    if chart.y_limits:
        axes.set_ylim(*chart.y_limits)
    if chart.lines:
        axes.legend(frameon=False)


def _bars(axes: Axes, chart: BarChart) -> None:
    width = 0.8 / max(len(chart.series), 1)
    for place, bars in enumerate(chart.series):
        known = [number for number, value in enumerate(bars.values) if value is not None]
        heights = [float(bars.values[number] or 0.0) for number in known]
        where = [number + (place - (len(chart.series) - 1) / 2.0) * width for number in known]
        spread = _spread(bars, known, heights)
        colour = _COLOURS[place % len(_COLOURS)]
        axes.bar(where, heights, width, label=_plain(bars.name), color=colour, yerr=spread, ecolor="#333333")
    if chart.at is not None:
        axes.axhline(chart.at, color="#777777", linewidth=0.8, linestyle="-.")
    axes.set_xticks(
        range(len(chart.groups)), [_plain(group) for group in chart.groups], rotation=35, ha="right", fontsize=8.0
    )
    axes.set_ylabel(_plain(chart.value_label))
    if chart.limits:
        axes.set_ylim(*chart.limits)


def _spread(bars: Bars, known: list[int], heights: list[float]) -> list[list[float]] | None:
    """Return the lengths of the whiskers below and above, or None where no interval is given."""
    if not bars.low or not bars.high:
        return None
    below, above = [], []
    for number, height in zip(known, heights, strict=True):
        low, high = bars.low[number], bars.high[number]
        below.append(0.0 if low is None else max(height - low, 0.0))
        above.append(0.0 if high is None else max(high - height, 0.0))
    return [below, above]


def _plain(text: str) -> str:
    """A dollar sign would begin a formula."""
    return text.replace("$", r"\$")
