"""The dashboard is current, small enough to read, and shows percentiles."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest

from deploy.grafana.build import main, rendered
from tests.support.promql import DASHBOARD, panels

if TYPE_CHECKING:
    from pathlib import Path


def test_the_committed_dashboard_is_what_its_source_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert DASHBOARD.read_text() == rendered()
    assert main(["--check"]) == 0
    assert capsys.readouterr().err == ""


def test_a_stale_dashboard_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from deploy.grafana import build

    stale = tmp_path / "pointsman.json"
    monkeypatch.setattr(build, "DASHBOARD", stale)
    assert main(["--check"]) == 1
    assert "make dashboards" in capsys.readouterr().err
    assert main([]) == 0
    assert main(["--check"]) == 0


def test_one_screen_after_the_other_tells_the_story() -> None:
    board = json.loads(DASHBOARD.read_text())
    rows = [panel["title"] for panel in board["panels"] if panel["type"] == "row"]
    assert rows[:4] == ["Is it up", "Is it slow", "Is routing right", "Are answers good"]
    assert len(panels()) <= 40
    assert {variable["name"] for variable in board["templating"]["list"]} == {"datasource", "job", "instance"}


def test_every_panel_says_what_it_shows_and_in_which_unit() -> None:
    for panel in panels():
        assert len(panel["description"]) > 15, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            assert 'job=~"$job"' in target["expr"], panel["title"]


def test_times_are_percentiles_in_seconds_and_nothing_is_an_average() -> None:
    for panel in panels():
        for target in panel["targets"]:
            expr = target["expr"]
            assert "avg" not in expr
            assert "_sum" not in expr
            if "seconds_bucket" in expr:
                assert expr.startswith("histogram_quantile(")
                assert panel["fieldConfig"]["defaults"]["unit"] == "s", panel["title"]


def test_panels_lie_beside_each_other_and_not_on_top() -> None:
    board = json.loads(DASHBOARD.read_text())
    boxes = [(panel["title"], panel["gridPos"]) for panel in board["panels"]]
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, f"{one} lies on {other}"
    assert all(box["x"] + box["w"] <= 24 for _, box in boxes)
    identifiers = [panel["id"] for panel in board["panels"] if "id" in panel]
    assert len(identifiers) == len(set(identifiers))
