"""Whole answers on seeded slices of public sets: what the loop adds, and that its machinery loses nothing.

Bounds leave room for the width of the intervals. `pointsman eval answers` measures everything, over whole corpora.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from router.application import open_application
from router.evaluation.answers.evaluate import Plan, evaluate_answers
from router.settings import load_settings
from standard.domain.question import Route

pytestmark = [pytest.mark.data, pytest.mark.timeout(300)]

SLICE = 20
DOCUMENTS = 400


@pytest.fixture(scope="module")
def measured(
    module_database_url: str, public_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    async def measure() -> dict[str, dict[str, Any]]:
        own = tmp_path_factory.mktemp("answers")
        settings = load_settings(data_dir=own, database={"url": module_database_url}, llm={"base_url": ""})
        plans = {
            "gold": Plan(("musique",), Route.AGENTIC, "gold", limit=SLICE, documents=DOCUMENTS),
            "offline": Plan(("hotpotqa",), Route.AGENTIC, limit=SLICE, documents=DOCUMENTS),
            "auto": Plan(("velvera",), limit=SLICE),
        }
        async with open_application(settings) as application:
            reports = {
                name: await evaluate_answers(application, public_data / "qa", plan) for name, plan in plans.items()
            }
        return {name: next(iter(report["sets"].values())) for name, (report, _) in reports.items()}

    return asyncio.run(measure())


def test_with_a_perfect_planner_the_machinery_loses_nothing(measured: dict[str, dict[str, Any]]) -> None:
    within = measured["gold"]["equal_passages"]["12"]
    assert within["recall"] >= 0.87
    assert within["difference"]["mean"] > 0.0


def test_the_offline_loop_finds_what_one_retrieval_does_not(measured: dict[str, dict[str, Any]]) -> None:
    figures = measured["offline"]
    assert figures["all@10"] >= 0.85
    assert figures["difference"]["all@10"]["mean"] >= 0.0
    assert figures["llm_calls"] == 0.0


def test_the_gateways_own_choice_answers_from_both_routes_and_abstains_on_some(
    measured: dict[str, dict[str, Any]],
) -> None:
    figures = measured["auto"]
    assert 0.0 < figures["agentic_share"] < 1.0
    assert figures["citation_precision"] >= 0.5
    assert figures["abstained_answerable"] <= 0.4
    assert len(figures["unanswerable"]["signals"]["evidence"]["curve"]) > 2
