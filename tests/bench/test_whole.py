"""The whole benchmark in its quick slice: every figure is there and is what it says; nothing of how fast it is."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.command_line import CommandLine

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.timeout(330)  # some forty processes start, on however busy a machine


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, module_database_url: str) -> tuple[dict[str, Any], str, Path]:
    """(what --json printed, what was said on stderr, the folder of the report)."""
    folder = tmp_path_factory.mktemp("bench")
    pointsman = CommandLine(folder, module_database_url, seconds=300.0)
    found = pointsman.one("bench", "--quick", "--json", "--out", str(folder / "report"))
    return found, pointsman.stderr, folder / "report"


@pytest.fixture
def figures(ran: tuple[dict[str, Any], str, Path]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = ran[0]["figures"]
    return found


def value(figures: dict[str, dict[str, Any]], name: str) -> float:
    return float(figures[name]["value"])


def test_every_figure_says_its_unit_and_how_it_was_measured(figures: dict[str, dict[str, Any]]) -> None:
    for name, figure in figures.items():
        assert set(figure) == {"value", "unit", "what", "goal"}
        assert figure["what"], name
        unit = re.search(r"_(us|ms|mb)$", name)
        assert unit is None or figure["unit"].lower() == unit[1]


def test_the_machine_its_load_and_the_date_are_named(ran: tuple[dict[str, Any], str, Path]) -> None:
    machine = ran[0]["machine"]
    assert set(machine) == {"processor", "cores", "system", "python", "date", "load_before", "load_after"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", machine["date"])


def test_a_call_through_the_gateway_costs_more_than_an_echo(figures: dict[str, dict[str, Any]]) -> None:
    assert value(figures, "answer_cpu_us") > value(figures, "echo_cpu_us") > 0
    assert value(figures, "added_cpu_ratio") > 1
    assert value(figures, "traced_cpu_us") > 0


@pytest.mark.parametrize("streams", [1, 16])
def test_words_take_their_way_and_no_word_comes_before_it_was_sent(
    figures: dict[str, dict[str, Any]], streams: int
) -> None:
    for name in ("forward", "release", "first_event", "first_token"):
        p50, p99 = (value(figures, f"stream_{streams}_{name}_{rank}_ms") for rank in ("p50", "p99"))
        assert 0 < p50 <= p99
    release, forward = (value(figures, f"stream_{streams}_{name}_p50_ms") for name in ("release", "forward"))
    assert release <= forward
    first = value(figures, f"stream_{streams}_first_event_p50_ms")
    assert first <= value(figures, f"stream_{streams}_first_token_p50_ms")


def test_cancellations_reach_the_model_and_the_database(figures: dict[str, dict[str, Any]]) -> None:
    for name in ("llm", "sql"):
        assert 0 < value(figures, f"cancel_{name}_p50_ms") <= value(figures, f"cancel_{name}_p99_ms") < 5000


def test_the_curve_has_a_point_for_each_number_of_connections(ran: tuple[dict[str, Any], str, Path]) -> None:
    found, _, _ = ran
    for count in found["plan"]["connections"]:
        assert found["figures"][f"standard_{count}_calls_per_second"]["value"] > 0


def test_each_route_costs_cpu_of_gateway_and_database(figures: dict[str, dict[str, Any]]) -> None:
    routes = {found[1] for name in figures if (found := re.fullmatch(r"cost_(\w+)_calls_per_core_hour", name))}
    assert routes == {"search", "classify", "standard_extractive", "agentic_by_rules", "standard", "agentic"}
    for route in routes:
        cpu = value(figures, f"cost_{route}_cpu_ms")
        assert value(figures, f"cost_{route}_calls_per_core_hour") == pytest.approx(3.6e6 / cpu)
    assert value(figures, "cost_agentic_cpu_ms") > value(figures, "cost_standard_cpu_ms")


def test_ingest_tells_where_its_time_goes(figures: dict[str, dict[str, Any]]) -> None:
    assert value(figures, "ingest_chunks_per_second") >= value(figures, "ingest_documents_per_second") > 0
    assert 0 < value(figures, "ingest_embedder_share") <= 1
    for stage in ("read", "cut", "embed"):
        assert value(figures, f"ingest_{stage}_ms") > 0


def test_without_their_python_the_peers_are_left_out_and_it_is_said(ran: tuple[dict[str, Any], str, Path]) -> None:
    found, said, folder = ran
    assert "LiteLLM and semantic-router are left out: make bench-peers brings them" in said
    assert not [name for name in found["figures"] if "litellm" in name or "semantic_router" in name]
    assert found["plan"]["peers"] is False
    assert "were left out of this run" in (folder / "report.md").read_text()


def test_our_own_decision_is_judged_all_the_same(figures: dict[str, dict[str, Any]]) -> None:
    assert 0.5 < value(figures, "decision_pointsman_auc") < 1
    assert 0.5 < value(figures, "decision_pointsman_accuracy") < 1


def test_the_report_holds_every_figure_and_all_its_charts(ran: tuple[dict[str, Any], str, Path]) -> None:
    found, _, folder = ran
    page = (folder / "report.md").read_text()
    for name in found["figures"]:
        assert name.replace("_", "\\_") in page
    assert {path.stem for path in folder.glob("*.svg")} == set(re.findall(r"\((\w+)\.svg\)", page))
    assert json.loads((folder / "results.json").read_text()) == found


def test_nothing_is_left_of_what_was_made_for_the_run(
    ran: tuple[dict[str, Any], str, Path], module_database_url: str
) -> None:

    assert ran[0]["figures"]
    with psycopg.connect(module_database_url) as conn:
        names = {row[0] for row in conn.execute("select name from collection")}
        keys = conn.execute("select count(*) from api_key where revoked_at is null").fetchone()
    assert "bench-ingest" not in names
    assert keys == (0,)
