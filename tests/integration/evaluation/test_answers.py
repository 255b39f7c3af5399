"""`eval answers` end to end: a small set with bridges, a reduced corpus, the real embedder and database."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from router.application import Application, open_application
from router.evaluation.answers.evaluate import Plan, evaluate_answers
from router.evaluation.answers.report import answers_report
from router.evaluation.report import write_report
from router.settings import load_settings
from standard.domain.errors import InvalidInput
from standard.domain.question import Route

BUILDERS = {
    "Harbour of Lund": ("Edda Quill", "1911", "Cold Haven"),
    "Quarry of Stone": ("Ove Marsh", "1923", "Alder Wharf"),
    "Orchard of Vale": ("Ilse Brandt", "1937", "Port Ness"),
    "Chapel of Elms": ("Tove Lind", "1948", "Gull Rock"),
}


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "builders"
    folder.mkdir(parents=True)
    documents, questions, unanswerable = [], [], []
    for n, (place, (person, year, town)) in enumerate(BUILDERS.items()):
        documents += [
            {"id": f"p{n}", "title": place, "text": f"The {place} was built by {person}. It is open all year."},
            {"id": f"m{n}", "title": person, "text": f"{person} was born in {year} in {town}. {person} liked rain."},
        ]
        documents += [
            {"id": f"f{n}-{k}", "title": f"Notice {n}{k}", "text": f"Notice {k} about visiting {place} with dogs."}
            for k in range(8)
        ]
        steps = [
            {"question": f"{place} >> built by", "answer": person},
            {"question": "#1 >> date of birth", "answer": year},
        ]
        asked = {"question": f"When was the builder of the {place} born?", "answers": [year]}
        questions.append({"id": f"q{n}", "supporting_ids": [f"p{n}", f"m{n}"], "decomposition": steps, **asked})
    unanswerable.append(
        {"id": "u0", "question": "When was the builder of the Harbour of Lund born?", "held_out_ids": ["m0"]}
    )
    unanswerable.append({"id": "u1", "question": "What does a ticket for the moon cost?"})
    for name, rows in (
        ("corpus", documents),
        ("questions", questions),
        ("questions_unanswerable", unanswerable),
    ):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder.parent


@pytest_asyncio.fixture
async def application(database_url: str, tmp_path: Path) -> AsyncIterator[Application]:
    settings = load_settings(data_dir=tmp_path / "own", database={"url": database_url})
    async with open_application(settings) as opened:
        yield opened


async def test_a_loop_is_measured_against_single_shot_and_the_measurement_can_be_cut_off_anywhere(
    application: Application, sets: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    plan = Plan(route=Route.AGENTIC, budgets=(1, 3))
    report, records = await evaluate_answers(application, sets, plan, folder=out)
    figures = report["sets"]["builders"]
    assert figures["questions"] == 4
    assert figures["all@10"] >= figures["single_shot"]["all@10"]
    assert figures["agentic_share"] == 1.0
    assert set(figures["budgets"]) == {"1", "3"}
    assert figures["budgets"]["1"]["steps"] == 1.0
    assert figures["unanswerable"]["questions"] == 2
    assert sum(figures["failures"].values()) == 4
    written = write_report(out, answers_report(report, records), report)
    assert (out / "budgets.svg") in written

    kept = (out / "answers.jsonl").read_text()
    (out / "answers.jsonl").write_text(kept[: len(kept) // 2])
    again, _ = await evaluate_answers(application, sets, plan, folder=out)
    lines = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()[1:]]
    assert len(lines) == len(kept.splitlines()) - 1
    for timed in ("seconds",):
        again["sets"]["builders"].pop(timed)
        figures.pop(timed)
    assert again["sets"]["builders"] == figures


async def test_what_is_held_out_is_not_in_the_corpus_of_the_question_that_lacks_it(
    application: Application, sets: Path
) -> None:
    _, records = await evaluate_answers(application, sets, Plan(route=Route.AGENTIC))
    lacking = next(record for record in records if record.id == "u0")
    whole = next(record for record in records if record.id == "q0" and record.arm == "asked")
    assert "m0" not in lacking.acquired
    assert "m0" in whole.acquired


async def test_the_gold_controller_searches_for_the_decomposition(application: Application, sets: Path) -> None:
    report, records = await evaluate_answers(application, sets, Plan(route=Route.AGENTIC, controller="gold"))
    figures = report["sets"]["builders"]
    assert figures["recall@10"] == 1.0
    assert figures["steps"] == 3.0
    assert figures["unanswerable"]["questions"] == 0
    assert all(record.actions == {"search": 3, "plan": 1} for record in records if record.arm == "asked")


async def test_a_route_is_decided_for_each_question_where_none_is_forced(application: Application, sets: Path) -> None:
    report, _ = await evaluate_answers(application, sets, Plan(limit=2, documents=20))
    figures = report["sets"]["builders"]
    assert figures["questions"] == 2
    assert figures["documents"] == 20
    assert sum(figures["routes"].values()) == pytest.approx(1.0)
    assert figures["difference"]["f1"] is not None


async def test_a_controller_does_not_go_with_the_standard_route(application: Application, sets: Path) -> None:
    with pytest.raises(InvalidInput, match="agentic route"):
        await evaluate_answers(application, sets, Plan(route=Route.STANDARD, controller="offline"))
