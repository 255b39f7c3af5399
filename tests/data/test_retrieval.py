"""Retrieval over public sets: the three companies in full, a seeded slice of each of the larger sets.

A slice (60 questions over 1,000 documents) keeps this within minutes on two cores; `pointsman eval retrieval` measures
the whole sets. Figures on slices move by a few points with the sample, so what is asserted leaves that much room; the
sign of hybrid against plain reciprocal rank fusion is asserted with its interval.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from router.evaluation.metrics import METRICS
from router.evaluation.retrieval import LEGS, Slice, evaluate_retrieval
from standard.database.pool import DatabaseConfig, open_pool
from standard.embedding.factory import open_embedder

pytestmark = [pytest.mark.data, pytest.mark.timeout(1200)]

SETS = ("2wiki", "aventro", "cendara", "hotpotqa", "musique", "popqa", "velvera")
ENTERPRISE = ("aventro", "cendara", "velvera")


@pytest.fixture(scope="module")
def report(module_database_url: str, public_data: Path) -> dict[str, Any]:
    async def measure() -> dict[str, Any]:
        async with open_embedder() as embedder, open_pool(DatabaseConfig(url=module_database_url)) as pool:
            part = Slice(questions=130, documents=1500)
            smaller = Slice(questions=60, documents=1000)
            companies = await evaluate_retrieval(pool, embedder, public_data / "qa", names=ENTERPRISE, part=part)
            others = [name for name in SETS if name not in ENTERPRISE]
            rest = await evaluate_retrieval(pool, embedder, public_data / "qa", names=others, part=smaller)
        return {"companies": companies, "rest": rest, "sets": companies["sets"] | rest["sets"]}  # type: ignore[operator]

    return asyncio.run(measure())


def test_every_set_has_every_figure(report: dict[str, Any]) -> None:
    assert sorted(report["sets"]) == sorted(SETS)
    for figures in report["sets"].values():
        for leg in LEGS:
            assert set(figures[leg]) == set(METRICS)
            assert all(0.0 <= value <= 1.0 for value in figures[leg].values())


@pytest.mark.parametrize("name", SETS)
def test_hybrid_is_not_under_the_better_leg(report: dict[str, Any], name: str) -> None:
    figures = report["sets"][name]
    better = max(figures["dense"]["recall@5"], figures["lexical"]["recall@5"])
    room = 0.01 if name in ENTERPRISE else 0.03
    assert figures["hybrid"]["recall@5"] >= better - room


def test_hybrid_is_above_plain_rank_fusion_on_the_companies(report: dict[str, Any]) -> None:
    assert report["companies"]["differences"]["hybrid_minus_rrf"]["recall@5"]["low"] > 0.0


def test_hybrid_is_above_plain_rank_fusion_on_several_hops(report: dict[str, Any]) -> None:
    assert report["rest"]["differences"]["hybrid_minus_rrf"]["recall@5"]["mean"] > 0.0


@pytest.mark.parametrize("name", ["hotpotqa", "2wiki"])
def test_following_links_completes_questions_of_two_hops(report: dict[str, Any], name: str) -> None:
    figures = report["sets"][name]
    assert figures["linked"]["all@10"] > figures["hybrid"]["all@10"] + 0.02


@pytest.mark.parametrize("name", ENTERPRISE)
def test_the_companies_documents_are_found(report: dict[str, Any], name: str) -> None:
    assert report["sets"][name]["hybrid"]["recall@5"] >= 0.85
