"""`pointsman replay`: shipped contracts give what was recorded of the APIs they stand for, and a difference shows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import httpx2
import pytest

from router.http.contract.load import load_contracts
from router.replay.recorded import to_exchange
from router.replay.report import spread
from router.replay.run import send
from standard.domain.errors import Unavailable
from tests.support.command_line import CommandLine

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "deploy" / "contracts" / "recorded"
NAMES = sorted(path.stem for path in RECORDED.glob("*.jsonl"))
CORPUS = ROOT / "deploy" / "demo" / "corpus"
DOCUMENTS = ("pol-010-lost-property.md", "pol-007-travel-and-expenses.docx", "faq-003-islander-card.html")


class Replays(CommandLine):
    """Runs `pointsman` on a database that holds the documents which the recordings ask about."""

    def __init__(self, folder: Path, database_url: str) -> None:
        super().__init__(folder, database_url)
        self.environment["POINTSMAN_HTTP__CONTRACTS"] = '["plain"]'

    def report(self, *arguments: str, code: int = 0, stdin: str = "") -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self("replay", *arguments, "--json", code=code, stdin=stdin))
        return value


@pytest.fixture(scope="module")
def run(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Replays:
    replays = Replays(tmp_path_factory.mktemp("replay"), module_database_url)
    replays("ingest", *(str(CORPUS / name) for name in DOCUMENTS))
    return replays


def test_every_shipped_contract_has_recordings() -> None:
    contracts = load_contracts([str(ROOT / "deploy" / "contracts")])
    served = {contract.name for contract in contracts if contract.routes}
    assert len(served) >= 4
    assert served <= set(NAMES)


def test_what_was_recorded_replays_structurally_equal(run: Replays) -> None:
    contracts = [option for name in NAMES for option in ("--contract", name)]
    stdin = "".join((RECORDED / f"{name}.jsonl").read_text() for name in NAMES)
    report = run.report("-", *contracts, stdin=stdin)
    assert report["differences"] == []
    assert report["refused"] == []
    assert report["structurally_equal"] == report["exchanges"] == len(stdin.splitlines()) >= 30
    for name in NAMES:
        lines = [line for line in report["replayed"] if line["id"].startswith(name)]
        answered = [
            line
            for line in lines
            if line["recorded_status"] == 200
            and not line["endpoint"].endswith("/search")
            and line["id"] != "langserve-14"  # a batch of nothing
        ]
        assert len(answered) >= 5
        assert all(line["cosine"] > 0.4 for line in answered)
        assert any(line["recorded_status"] >= 400 for line in lines)
    assert report["seconds"]["now"]["p50"] > 0
    assert report["seconds"]["recorded"]["p50"] > 0


def test_a_difference_is_named_and_is_the_exit_code(run: Replays, tmp_path: Path) -> None:
    recorded = [json.loads(line) for line in (RECORDED / "plain.jsonl").read_text().splitlines()]
    first = recorded[0]
    del first["response"]["body"]["sources"][0]["score"]
    del first["response"]["body"]["sources"][1]["score"]
    first["response"]["body"]["took_ms"] = 12
    first["response"]["body"]["answer"] = ["in a list"]
    page = tmp_path / "report.html"
    stdin = json.dumps(first)
    report = run.report("-", "--contract", "plain", "--page", str(page), code=1, stdin=stdin)
    found = {(item["kind"], item["path"]) for item in report["differences"]}
    assert found == {("missing", "took_ms"), ("extra", "sources[].score"), ("type", "answer")}
    html = page.read_text()
    assert "took_ms" in html
    assert "<script" not in html
    assert "http" not in html.replace("http-equiv", "")


def test_without_its_contract_everything_differs(run: Replays) -> None:
    report = run.report(str(RECORDED / "dify.jsonl"), "--contract", "plain", code=1)
    assert report["structurally_equal"] == 0
    assert {"status"} <= {item["kind"] for item in report["differences"]}


def test_bad_lines_are_told_in_their_place(run: Replays) -> None:
    good = (RECORDED / "plain.jsonl").read_text().splitlines()[0]
    stdin = f'{{\n{{"id": "x", "request": {{"path": "ask"}}, "response": {{"body": {{}}}}}}\n{good}'
    report = run.report("-", "--contract", "plain", code=1, stdin=stdin)
    assert [item["id"] for item in report["refused"]] == ["1", "x"]
    assert report["exchanges"] == 1


def test_a_server_that_is_not_there_and_a_contract_that_is_none(run: Replays) -> None:
    run("replay", str(RECORDED / "plain.jsonl"), "--server", "http://127.0.0.1:9", code=1)
    assert "127.0.0.1:9" in run.stderr
    run("replay", str(RECORDED / "plain.jsonl"), "--contract", "nothing", code=2)
    assert "shipped are dify, langserve, plain, pointsman, r2r" in run.stderr


def test_it_asks_the_server_that_runs_on_the_data_directory(run: Replays) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "router.cli", "serve"],
        env=run.environment,
        cwd=run.folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        told = ""
        while "Ctrl-C" not in told:
            line = server.stderr.readline()
            assert line, told
            told += line
        assert "and HTTP on http://127.0.0.1:" in told
        note = json.loads((run.folder / "data" / "server.json").read_text())
        with urllib.request.urlopen(note["http_url"] + "/readyz", timeout=10) as response:
            assert json.loads(response.read())["status"] == "ready"
        report = run.report(str(RECORDED / "plain.jsonl"))
        assert report["structurally_equal"] == report["exchanges"]
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    assert server.returncode == 0


def test_a_server_that_drips_is_given_up_on_and_asked_for_plain_bytes() -> None:
    """Each byte is well within the timeout of one read; only the whole is not."""
    heads: list[str] = []

    async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 100000\r\n\r\n")
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while not writer.is_closing():
                writer.write(b".")
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()

    async def attempt() -> float:
        server = await asyncio.start_server(dripping, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        row = {"id": "drip", "request": {"method": "GET", "path": "/a"}, "response": {"status": 200, "text": "x"}}
        exchange = to_exchange(row)
        began = time.perf_counter()
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            with pytest.raises(Unavailable, match=r"exchange drip: did not end within 0\.5 s"):
                await send(client, exchange, {"Accept-Encoding": "gzip"}, seconds=0.5)
        took = time.perf_counter() - began
        server.close()
        return took

    assert asyncio.run(attempt()) < 5.0
    assert [line for line in heads[0].splitlines() if line.startswith("accept-encoding")] == [
        "accept-encoding: identity"
    ]


def test_the_spread_of_times_is_of_measured_values() -> None:
    found = spread([float(number) for number in range(10, 0, -1)])
    assert found == {"mean": 5.5, "min": 1.0, "p10": 1.0, "p50": 5.0, "p90": 9.0, "p99": 10.0}
