"""What people ask and rate becomes labels, labels a better model, and the model is used: through the command line."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pointsman.client import Pointsman
from pointsman.v1 import admin_pb2, corpus_pb2, gateway_pb2

from router.application import open_application
from router.process.serving import open_grpc
from router.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path

PLACES = ("Alder Wharf", "Cold Haven", "Moss Lock", "Gull Stair", "Tar Quay", "Reed Basin", "Salt Steps", "Crane Row")
DOCUMENTS = [
    corpus_pb2.Document(
        id=f"place-{number}",
        title=place,
        text=f"The harbour master of {place} is called Person{number}. The lamp of {place} burns paraffin until dawn.",
    )
    for number, place in enumerate(PLACES)
]
SIMPLE = [f"Who is the harbour master of {place}?" for place in PLACES] + [
    f"What does the lamp of {place} burn?" for place in PLACES
]
COMPLEX = [
    f"Does the person in charge of {one} earn more than whoever runs {other}?"
    for one, other in zip(PLACES, (*PLACES[1:], PLACES[0]), strict=True)
] + [
    f"Which of {one} and {other} had its lamp lit first, and by whom was that ordered?"
    for one, other in zip(PLACES, (*PLACES[2:], *PLACES[:2]), strict=True)
]


class Home:
    """A data directory and database; commands run on it as people run them."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self.url = database_url
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("POINTSMAN_")},
            "POINTSMAN_DATA_DIR": str(folder / "data"),
            "POINTSMAN_DATABASE__URL": database_url,
        }

    def run(self, *arguments: str, code: int = 0, **environment: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-m", "router.cli", *arguments],
            capture_output=True,
            text=True,
            env=self.environment | environment,
            cwd=self.folder,
            timeout=170,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


async def ask_and_rate(home: Home) -> dict[str, float]:
    """Ask everything through a served gateway, say which route was right, and return the counted verdicts."""
    settings = load_settings(
        data_dir=home.folder / "data", database={"url": home.url}, server={"port": 0, "metrics_port": 0}
    )
    async with (
        open_application(settings) as application,
        open_grpc(application) as port,
        Pointsman(f"127.0.0.1:{port}", timeout_seconds=60.0) as client,
    ):
        await client.ingest(DOCUMENTS)
        for kind, questions, right in (
            ("simple", SIMPLE, gateway_pb2.ROUTE_STANDARD),
            ("complex", COMPLEX, gateway_pb2.ROUTE_AGENTIC),
        ):
            for number, question in enumerate(questions):
                request = gateway_pb2.AnswerRequest(
                    question=question, request_id=f"{kind}-{number}", session_id=f"{kind}-session-{number}"
                )
                await client.gateway.Answer(request, timeout=60.0)
                await client.feedback(f"{kind}-{number}", rating=0.5, correct_route=right)
        # One that nobody rates, one that is erased, and one about which people disagree.
        await client.gateway.Answer(gateway_pb2.AnswerRequest(question="Where is Moss Lock?"), timeout=60.0)
        for number, right in enumerate((gateway_pb2.ROUTE_STANDARD, gateway_pb2.ROUTE_AGENTIC)):
            request = gateway_pb2.AnswerRequest(question="Who was Person3?", request_id=f"torn-{number}")
            await client.gateway.Answer(request, timeout=60.0)
            await client.feedback(f"torn-{number}", correct_route=right)
        await client.admin.EraseSubject(admin_pb2.EraseSubjectRequest(subject="simple-session-0"), timeout=60.0)
        registry = application.metrics.registry
        return {
            verdict: registry.get_sample_value("pointsman_routing_verdicts_total", {"verdict": verdict}) or 0.0
            for verdict in ("right", "over", "under")
        }


@pytest.mark.timeout(400)
def test_asked_rated_labelled_trained_and_used(tmp_path: Path, database_url: str) -> None:
    home = Home(tmp_path, database_url)
    counted = asyncio.run(ask_and_rate(home))
    # Each run at its end, and again where somebody's word turned that.
    assert sum(counted.values()) >= len(SIMPLE) + len(COMPLEX)
    assert counted["right"] > 0

    (report,) = home.run("label", "--out", "labels.jsonl", "--json")
    assert report["labels"] == {
        "total": len(SIMPLE) + len(COMPLEX) - 1,
        "simple": len(SIMPLE) - 1,  # one was erased
        "complex": len(COMPLEX),
    }
    assert report["conflicts"]["questions"] == 1
    assert {told["request_id"] for told in report["conflicts"]["shown"][0]} == {"torn-0", "torn-1"}
    lines = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {line["request_id"] for line in lines}.isdisjoint({"simple-0", "torn-0", "torn-1"})
    assert all(line["probability"] is not None and line["steps"] >= 1 for line in lines)
    verdicts = report["verdicts"]
    assert verdicts["right"] + verdicts["over"] + verdicts["under"] >= len(lines)

    (trained,) = home.run("train", "labels.jsonl", "--output", "model", "--json")
    assert trained["labels"]["used"] == len(lines)
    assert trained["labels"]["refused"] == trained["labels"]["conflicts"] == 0
    assert trained["adapted"]
    assert trained["after"]["log_loss"] < trained["before"]["log_loss"]

    asked = ["Who is the harbour master of Birch Pier?", "Does the person in charge of Birch Pier earn more than mine?"]
    (tmp_path / "new.jsonl").write_text("\n".join(json.dumps({"question": text}) for text in asked))
    shipped = home.run("classify", "new.jsonl", "--json")
    adapted = home.run("classify", "new.jsonl", "--model", "model", "--json")
    assert {line["model_version"] for line in adapted} == {trained["model_version"]}
    gap = [lines[1]["complex_probability"] - lines[0]["complex_probability"] for lines in (shipped, adapted)]
    assert gap[1] > 0.5
    assert adapted[0]["complex_probability"] < 0.5 <= adapted[1]["complex_probability"]

    # What narrows, narrows; and without consent there is nothing to learn from, which is said.
    assert home.run("label", "--collection", "elsewhere", "--json")[0]["runs"] == 0
    assert home.run("label", "--tenant", "elsewhere", "--json")[0]["runs"] == 0
    assert home.run("label", "--since", "2d", "--json")[0]["runs"] == report["runs"]
    (withdrawn,) = home.run("label", "--json", POINTSMAN_JOURNAL__QUESTIONS="hash")
    assert withdrawn["labels"]["total"] == 0
    assert withdrawn["left_out"] == {"without_text": report["runs"]}
    assert "hash" in withdrawn["warnings"][0]
    # 0.0000001 days are 9 ms: by then every run is beyond its retention, purged or not.
    assert home.run("label", "--json", POINTSMAN_JOURNAL__RETENTION_DAYS="0.0000001")[0]["runs"] == 0
    home.run("label", "--since", "yesterday", code=1)
