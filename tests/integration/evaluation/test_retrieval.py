"""The retrieval evaluation end to end: ingest, ask, figures."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from router.evaluation.metrics import METRICS
from router.evaluation.retrieval import LEGS, Slice, evaluate_retrieval
from standard.database.pool import Pool
from standard.domain.errors import NotFound
from tests.support.hashing_embedder import HashingEmbedder

PLACES = ("harbour", "quarry", "orchard", "foundry", "chapel", "vineyard", "windmill", "lighthouse")


def write_set(folder: Path) -> None:
    folder.mkdir(parents=True)
    documents = [
        {"id": f"p{n}", "title": place.title(), "text": f"The {place} was built by Mason {n}. It has {n + 3} gates."}
        for n, place in enumerate(PLACES)
    ] + [{"id": f"m{n}", "title": f"Mason {n}", "text": f"Born in year {1900 + n}."} for n in range(len(PLACES))]
    questions = [
        {"id": f"s{n}", "question": f"How many gates has the {place}?", "supporting_ids": [f"p{n}"]}
        for n, place in enumerate(PLACES)
    ] + [
        {"id": f"c{n}", "question": f"When was the builder of the {place} born?", "supporting_ids": [f"p{n}", f"m{n}"]}
        for n, place in enumerate(PLACES)
    ]
    for name, rows in (("corpus.jsonl", documents), ("questions.jsonl", questions)):
        (folder / name).write_text("\n".join(map(json.dumps, rows)))


async def test_every_leg_is_measured_and_a_second_run_embeds_no_passage(pool: Pool, tmp_path: Path) -> None:
    write_set(tmp_path / "places")
    embedder = HashingEmbedder()
    stderr = io.StringIO()
    console = Console(file=stderr, force_terminal=True, width=100)
    report = await evaluate_retrieval(pool, embedder, tmp_path, study=True, console=console)
    json.dumps(report)
    figures = report["sets"]["places"]  # type: ignore[index]
    assert (figures["questions"], figures["documents"]) == (16, 16)
    for leg in LEGS:
        assert set(figures[leg]) == set(METRICS)
        assert all(0.0 <= value <= 1.0 for value in figures[leg].values())
    assert figures["lexical"]["recall@5"] >= 0.75
    assert figures["linked"]["all@10"] >= 0.9  # the builder's page is named in the place's passage
    assert report["pooled"]["questions"] == 16  # type: ignore[index]
    assert set(report["differences"]["hybrid_minus_rrf"]) == set(METRICS)  # type: ignore[index]
    assert report["fusion"]["held_out"] == {}  # type: ignore[index]
    assert "places: questions" in stderr.getvalue()
    embedded = embedder.passages
    assert embedded == 16
    assert (await evaluate_retrieval(pool, embedder, tmp_path))["sets"] == report["sets"]
    assert embedder.passages == embedded


async def test_a_collection_of_another_embedder_is_made_anew(pool: Pool, tmp_path: Path) -> None:
    write_set(tmp_path / "places")
    await evaluate_retrieval(pool, HashingEmbedder(), tmp_path)
    other = HashingEmbedder(checksum="hashing-2")
    await evaluate_retrieval(pool, other, tmp_path)
    assert other.passages == 16


async def test_a_slice_is_a_collection_of_its_own(pool: Pool, tmp_path: Path) -> None:
    write_set(tmp_path / "places")
    report = await evaluate_retrieval(pool, HashingEmbedder(), tmp_path, part=Slice(questions=4, documents=10))
    figures = report["sets"]["places"]  # type: ignore[index]
    assert (figures["questions"], figures["documents"], figures["slice"]) == (4, 10, "4q-10d-0")


async def test_a_set_that_is_not_there_is_said_so(pool: Pool, tmp_path: Path) -> None:
    write_set(tmp_path / "places")
    with pytest.raises(NotFound, match="no set moons"):
        await evaluate_retrieval(pool, HashingEmbedder(), tmp_path, names=["moons"])
