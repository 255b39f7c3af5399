"""The rules are valid, fire when they should and are silent when they should be; each alert leads to a page."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.support.promql import PROMETHEUS, rules
from tests.support.tools import ROOT, tool

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.promql import Rule

ALERTS = [rule for rule in rules() if rule.alert]
TESTS = sorted((PROMETHEUS / "tests").glob("*.yml"))
RUNBOOKS = ROOT / "docs" / "runbooks"


def promtool(*arguments: str) -> str:
    done = subprocess.run(
        [tool("promtool"), *arguments], capture_output=True, text=True, cwd=PROMETHEUS, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_configuration_and_every_rule_file_are_valid() -> None:
    said = promtool("check", "config", "prometheus.yml")
    assert "3 rule files found" in said


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_alerts_fire_and_are_silent_as_their_cases_say(path: Path) -> None:
    assert "SUCCESS" in promtool("test", "rules", str(path))


def test_a_case_that_does_not_hold_is_told(tmp_path: Path) -> None:
    """That the cases can fail at all."""
    case = {
        "rule_files": [str(PROMETHEUS / "rules" / "alerts.yml")],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": 'up{job="pointsman", instance="a"}', "values": "0x20"}],
                "promql_expr_test": [{"expr": "ALERTS", "eval_time": "10m", "exp_samples": []}],
            }
        ],
    }
    path = tmp_path / "case.yml"
    path.write_text(yaml.safe_dump(case))
    done = subprocess.run([tool("promtool"), "test", "rules", str(path)], capture_output=True, timeout=60, check=False)
    assert done.returncode != 0


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_alert_has_a_firing_and_a_silent_case(alert: Rule) -> None:
    name = alert.name
    cases = [case for path in TESTS for case in yaml.safe_load(path.read_text())["tests"]]
    mine = [case for case in cases if case["name"].split()[0] == name]
    firing = [case for case in mine if case["name"].startswith(f"{name} fires")]
    silent = [case for case in mine if case["name"].startswith(f"{name} is silent")]
    assert len(firing) + len(silent) == len(mine)
    assert any(name in str(each["exp_samples"]) for case in firing for each in case["promql_expr_test"])
    assert silent
    assert all(each["exp_samples"] == [] for case in silent for each in case["promql_expr_test"])


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_alert_says_what_is_the_matter_and_leads_to_its_page(alert: Rule) -> None:
    name, labels, annotations = alert.name, alert.labels, alert.annotations
    assert labels["severity"] in {"page", "ticket"}
    assert len(annotations["summary"]) > 20
    assert annotations["runbook_url"] == f"docs/runbooks/{name}.md"
    page = (ROOT / annotations["runbook_url"]).read_text()
    assert page.startswith(f"# {name}\n")
    assert "## How to look\n" in page
    assert "## What to do\n" in page


def test_no_page_is_left_of_an_alert_that_is_gone() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {alert.name for alert in ALERTS}


def test_pages_link_to_pages_that_there_are() -> None:
    for path in RUNBOOKS.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)", path.read_text()):
            assert (path.parent / target).is_file(), f"{path.name}: {target}"
