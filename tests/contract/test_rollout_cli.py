"""`pointsman rollout`: a mode set on a running server, what it brought, and what a simulation says before."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.command_line import CommandLine, jsonl, served

if TYPE_CHECKING:
    from pathlib import Path

PUMP = [{"id": "pump", "title": "Spare pump", "text": "The spare bilge pump is kept in the shed at Alder Wharf."}]
QUESTIONS = [
    {"id": "a", "question": "Where is the spare bilge pump kept?"},
    {"id": "b", "question": "Compare how the tide at Alder Wharf and at Cold Haven changed, and why, since the flood."},
]


@pytest.fixture
def pointsman(tmp_path: Path, database_url: str) -> CommandLine:
    return CommandLine(tmp_path, database_url)


def report(pointsman: CommandLine, *arguments: str) -> dict[str, Any]:
    return pointsman.one("rollout", "report", *arguments, "--json")


def test_a_rollout_is_set_seen_reported_and_in_the_history(pointsman: CommandLine, tmp_path: Path) -> None:
    pointsman.environment["POINTSMAN_ROUTING__THRESHOLD"] = "0"
    pointsman.one("ingest", "-", "--json", stdin=jsonl(PUMP))
    with served(pointsman):
        assert pointsman.one("rollout", "show", "--json")["policy"]["rollout"] == "enforce"
        changed = pointsman.one("rollout", "set", "shadow", "--sample", "1", "--json")
        assert (changed["policy"]["rollout"], changed["version"]) == ("shadow", 1)
        held = pointsman.one("ask", QUESTIONS[0]["question"], "-q", "--json")
        assert (held["route"], held["decision"]["reason"]) == ("standard", "rollout")
        until = time.monotonic() + 15
        while report(pointsman)["shadow"]["pairs"] < 1:
            assert time.monotonic() < until, "no answer aside was kept"
            time.sleep(0.2)
        pointsman.one("rollout", "set", "canary", "--percent", "100", "--json")
        taken = pointsman.one("ask", QUESTIONS[0]["question"], "-q", "--json")
        assert taken["route"] == "agentic"
        pointsman.one("rollout", "set", "--kill", "--json")
        assert "kill switch is on" in pointsman("rollout", "show")
    found = report(pointsman, "--out", str(tmp_path / "report"))
    assert (found["runs"], found["arms"]["agentic"]["runs"], found["arms"]["held_back"]["runs"]) == (2, 1, 1)
    assert found["canary"]["lift"] == 0.0
    assert (found["shadow"]["pairs"], found["shadow"]["agreement"], found["shadow"]["lift"]) == (1, 1.0, 0.0)
    assert sum(bucket["runs"] for bucket in found["buckets"]) == 2
    assert found["arms"]["agentic"]["seconds_p50"] > 0.0
    assert json.loads((tmp_path / "report" / "results.json").read_text()) == found
    text = (tmp_path / "report" / "report.md").read_text()
    for name in ("runs", "seconds", "usd", "agreement", "lift"):
        assert f"({name}.svg)" in text
        assert (tmp_path / "report" / f"{name}.svg").stat().st_size > 1000
    assert report(pointsman, "--tenant", "nobody")["runs"] == 0
    history = pointsman.lines("rollout", "history", "--json")
    assert [each["after"]["kill_switch"] for each in history] == [True, False, False]
    assert [each["after"]["rollout"] for each in history] == ["canary", "canary", "shadow"]
    assert history[-1]["before"] is None
    assert "canary" in pointsman("rollout", "history")


def test_a_simulation_tells_share_and_what_is_known_of_cost(pointsman: CommandLine, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(jsonl(QUESTIONS))
    found = pointsman.one("rollout", "simulate", str(log), "--json")
    assert (found["questions"], found["refused_count"]) == (2, 0)
    assert found["takes"]["standard"] == {"seconds": None, "usd": None, "source": None, "runs": 0}
    assert sum(bucket["questions"] for bucket in found["buckets"]) == 2
    shares = [each["agentic_share"] for each in found["thresholds"]]
    assert shares == sorted(shares, reverse=True)

    pointsman.one("ingest", "-", "--json", stdin=jsonl(PUMP))
    pointsman.one("ask", QUESTIONS[0]["question"], "--route", "standard", "-q", "--json")  # forced: measures nothing
    pointsman.one("ask", QUESTIONS[0]["question"], "--threshold", "1", "-q", "--json")
    with_look = pointsman.one(
        "rollout", "simulate", str(log), "--collection", "default", "--threshold", "0", "--agentic-seconds", "5",
        "--agentic-usd", "0.02", "--out", str(tmp_path / "simulated"), "--json",
    )  # fmt: skip
    assert with_look["agentic_share"] == 1.0
    assert with_look["expected"] == {"seconds_mean": 5.0, "usd_per_1000": pytest.approx(20.0)}
    assert with_look["takes"]["standard"]["runs"] == 1
    assert with_look["takes"]["agentic"]["source"] == "option"
    assert (tmp_path / "simulated" / "share.svg").stat().st_size > 1000


def test_what_cannot_be_simulated_is_said(pointsman: CommandLine, tmp_path: Path) -> None:
    found = pointsman.one(
        "rollout", "simulate", "-", "--json", stdin='{"question": "Where is the pump?"}\nno json\n{"q": 1}\n', code=1
    )
    assert (found["questions"], found["refused_count"]) == (1, 2)
    assert "question" in found["refused"][1]["error"]
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    pointsman("rollout", "simulate", str(empty), code=1)
    assert "holds no question" in pointsman.stderr
    pointsman("rollout", "set", "sideways", code=1)
    assert "sideways" in pointsman.stderr
    pointsman("rollout", "set", code=2)
