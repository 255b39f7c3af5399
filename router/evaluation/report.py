"""An evaluation as a folder: report.md for people, its charts beside it, results.json for programs.

A report is data (sections of paragraphs, tables and charts) made by a pure function of the results; `write_report`
writes it. `prepare` is called before anything is measured: what would keep the report from being written is said then.

    folder = prepare(out)                    # FailedPrecondition or InvalidInput now, not after half an hour
    results = evaluate(...)
    write_report(folder, Report("Answers", [Section("Quality", paragraphs=[...], tables=[...], charts=[...])]), results)
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from router.evaluation.plots import draw, require_matplotlib
from router.written import write_at_once
from standard.domain.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from router.evaluation.plots import Chart

Cell: TypeAlias = str | int | float | bool | None
REPORT, RESULTS = "report.md", "results.json"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under `columns`; floats are shown with `digits` decimals, None as a dash."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    digits: int = 3


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what stands under it: paragraphs, then tables, then charts."""

    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report; `summary` stands under the title."""

    title: str
    sections: Sequence[Section]
    summary: Sequence[str] = ()


def prepare(folder: Path) -> Path:
    """Make the folder, and return it. Raises FailedPrecondition without matplotlib, InvalidInput where none can be."""
    require_matplotlib()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InvalidInput("out", f"{folder} cannot be written to: {error.strerror or error}") from None
    return folder


def write_report(folder: Path, report: Report, results: Mapping[str, Any]) -> list[Path]:
    """Write report.md, results.json and every chart, each file at once; returns their paths. Raises OSError."""
    written = [folder / RESULTS]
    text = json.dumps(results, indent=2, ensure_ascii=False, allow_nan=False)
    write_at_once(written[0], text + "\n")
    for section in report.sections:
        for chart in section.charts:
            path = folder / f"{chart.name}.svg"
            draw(chart, path)
            written.append(path)
    write_at_once(folder / REPORT, markdown(report))
    return [folder / REPORT, *written]


def markdown(report: Report) -> str:
    """Return the report as Markdown; charts are linked as files beside it."""
    lines = [f"# {escaped(report.title)}", ""]
    for paragraph in report.summary:
        lines += [paragraph, ""]
    for section in report.sections:
        lines += [f"## {escaped(section.title)}", ""]
        for paragraph in section.paragraphs:
            lines += [paragraph, ""]
        for table in section.tables:
            lines += [*table_lines(table), ""]
        for chart in section.charts:
            lines += [f"![{escaped(chart.title)}]({chart.name}.svg)", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def shown(value: Cell, digits: int = 3) -> str:
    """Return a figure as people read it: floats with `digits` decimals, None as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.{digits}f}"
    return escaped(str(value))


def with_interval(value: float | None, low: float | None, high: float | None, digits: int = 3) -> str:
    """Return a figure with its interval: 0.870 (0.854 to 0.883)."""
    if value is None or low is None or high is None:
        return shown(value, digits)
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def escaped(text: str) -> str:
    """Return text that means nothing in Markdown, in one line; names of sets and models come from outside."""
    joined = " ".join(text.split())
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>|#" else sign for sign in joined)


def table_lines(table: Table) -> list[str]:
    """Return a table as lines of Markdown."""
    lines = [f"| {' | '.join(escaped(name) for name in table.columns)} |", f"|{'---|' * len(table.columns)}"]
    lines += [f"| {' | '.join(shown(cell, table.digits) for cell in row)} |" for row in table.rows]
    return lines
