"""Reports of evaluations: what is written, and what is said before anything is measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from router.evaluation.plots import BarChart, Bars, Line, LineChart, draw
from router.evaluation.report import Report, Section, Table, escaped, markdown, prepare, with_interval, write_report
from standard.domain.errors import FailedPrecondition, InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

CURVE = LineChart(
    "roc",
    "ROC at $5",
    "false positives",
    "recall",
    [
        Line("model", [0.0, 0.2, 1.0], [0.0, 0.7, 1.0], low=[0, 0.6, 1], high=[0, 0.8, 1]),
        Line("chance", [0, 1], [0, 1], "reference"),
    ],
    at=0.2,
)
BARS = BarChart("sets", "AUC", "AUC", ["one_set", "other"], [Bars("text", [0.7, None], [0.6, None], [0.8, None])])


def test_a_report_is_written_whole(tmp_path: Path) -> None:
    section = Section(
        "Figures", ["Held out."], [Table(["set", "auc"], [["one_set", 0.71234], ["other", None]])], [CURVE, BARS]
    )
    results = {"auc": 0.71234}
    written = write_report(
        prepare(tmp_path / "deep" / "out"), Report("Routing", [section], ["What was done."]), results
    )
    assert {path.name for path in written} == {"report.md", "results.json", "roc.svg", "sets.svg"}
    assert {path.name for path in (tmp_path / "deep" / "out").iterdir()} == {path.name for path in written}
    text = (tmp_path / "deep" / "out" / "report.md").read_text(encoding="utf-8")
    assert "| one\\_set | 0.712 |" in text
    assert "| other | – |" in text
    assert "![ROC at $5](roc.svg)" in text
    assert json.loads((tmp_path / "deep" / "out" / "results.json").read_text(encoding="utf-8")) == results


def test_the_same_chart_gives_the_same_bytes_and_keeps_its_words(tmp_path: Path) -> None:
    for chart in (CURVE, BARS):
        draw(chart, tmp_path / "first.svg")
        draw(chart, tmp_path / "second.svg")
        assert (tmp_path / "first.svg").read_bytes() == (tmp_path / "second.svg").read_bytes()
    draw(CURVE, tmp_path / "roc.svg")
    assert "false positives" in (tmp_path / "roc.svg").read_text(encoding="utf-8")


def test_a_missing_matplotlib_is_said_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(FailedPrecondition, match="pointsman\\[train\\]"):
        prepare(tmp_path)


def test_a_folder_that_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(InvalidInput, match="taken"):
        prepare(tmp_path / "taken")


@given(st.text(alphabet=st.sampled_from("ab _*|`[]<>#\\\n")))
def test_a_cell_from_outside_stays_in_its_cell(name: str) -> None:
    text = markdown(Report("R", [Section("S", tables=[Table(["set", "auc"], [[name, 0.5]])])]))
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert html.count("<td") == 2
    assert "<em>" not in html
    assert "<code>" not in html


def test_figures_carry_their_interval() -> None:
    assert with_interval(0.87, 0.854, 0.883) == "0.870 (0.854 to 0.883)"
    assert with_interval(0.87, None, None) == "0.870"
    assert escaped("a_b\nc") == "a\\_b c"
