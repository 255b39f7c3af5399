"""Routing over the three public companies, whole sets held out, and the text model on unseen families.

Bounds leave room for the width of the intervals: 130 questions a company. `pointsman eval` measures everything.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from classifier.evaluation.text import evaluate_classifier
from router.evaluation.routing import evaluate_routing
from standard.database.pool import DatabaseConfig, open_pool
from standard.embedding.factory import open_embedder

pytestmark = [pytest.mark.data, pytest.mark.timeout(1200)]

COMPANIES = ("aventro", "cendara", "velvera")


@pytest.fixture(scope="module")
def routing(module_database_url: str, public_data: Path) -> dict[str, Any]:
    async def measure() -> dict[str, Any]:
        async with open_embedder() as embedder, open_pool(DatabaseConfig(url=module_database_url)) as pool:
            return await evaluate_routing(pool, embedder, public_data / "qa", names=COMPANIES)

    return asyncio.run(measure())


@pytest.fixture(scope="module")
def text(public_data: Path) -> dict[str, Any]:
    return evaluate_classifier(public_data / "routing", most=100)


def test_several_documents_are_foreseen_on_companies_held_out(routing: dict[str, Any]) -> None:
    found = [routing["sets"][name]["held_out"]["auc_several"] for name in COMPANIES]
    assert np.mean(found) >= 0.87
    assert min(found) >= 0.80


def test_incomplete_first_looks_are_foreseen_on_companies_held_out(routing: dict[str, Any]) -> None:
    found = [routing["sets"][name]["held_out"]["auc_incomplete"] for name in COMPANIES]
    assert np.mean(found) >= 0.70


def test_both_beat_text_and_chance_and_stay_under_the_oracle(routing: dict[str, Any]) -> None:
    pooled = routing["pooled"]
    assert pooled["random"] < pooled["both"] < pooled["oracle"]
    assert pooled["both"] > pooled["text"]
    assert set(COMPANIES) <= set(routing["trained_on"])


def test_what_the_shipped_model_saw_is_not_mistaken_for_what_it_did_not(routing: dict[str, Any]) -> None:
    for name in COMPANIES:
        figures = routing["sets"][name]
        assert figures["auc_several"] >= figures["held_out"]["auc_several"]


def test_case_and_final_marks_flip_nothing(text: dict[str, Any]) -> None:
    assert text["flips"]["case"] <= 0.01
    assert text["flips"]["punctuation"] <= 0.01


def test_the_text_model_holds_on_domains_held_out(text: dict[str, Any]) -> None:
    assert text["own"]["auc"] >= 0.84
    assert text["own"]["ece"] <= 0.05
    assert text["own"]["length_matched"]["auc"] >= 0.84


def test_unseen_families_are_better_than_chance_and_single_label_sources_have_no_figure(text: dict[str, Any]) -> None:
    assert text["unseen"]["mixed_auc"] >= 0.60
    assert text["unseen"]["pooled_auc"] >= 0.60
    assert text["sources"]["hotpotqa"]["auc"] is None
