"""The command line as outsiders rely on it: JSON on stdout, the rest on stderr, exit codes, positional FILE."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from classifier.artifact import SHIPPED
from router.process.serverlock import server_lock
from tests.support.command_line import CommandLine, jsonl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCUMENTS = [
    {"id": "pump", "title": "Spare pump", "text": "The spare bilge pump is kept in the shed at Alder Wharf."},
    {"id": "tide", "title": "Tide table", "text": "High water at Alder Wharf is forty minutes after Cold Haven."},
]


@pytest.fixture
def pointsman(tmp_path: Path, database_url: str) -> CommandLine:
    return CommandLine(tmp_path, database_url)


def test_ingest_ask_classify_and_trace_speak_json(pointsman: CommandLine) -> None:
    report = pointsman.one("ingest", "-", "--json", stdin=jsonl(DOCUMENTS))
    assert (report["added"], report["rejected_count"]) == (2, 0)
    again = pointsman.one("ingest", "-", "--json", stdin=jsonl(DOCUMENTS))
    assert (again["added"], again["unchanged"], again["rescanned"]) == (0, 2, 0)

    answer = pointsman.one("ask", "Where is the spare bilge pump kept?", "--route", "standard", "--json")
    assert "shed at Alder Wharf" in answer["answer"]
    assert answer["route"] == "standard"
    assert answer["answer_source"] == "extractive"
    assert answer["citations"][0]["document_id"] == "pump"
    assert set(answer["usage"]) == {
        "input_tokens", "output_tokens", "cached_tokens", "retrieved_tokens", "llm_calls", "cost_usd",
    }  # fmt: skip
    assert answer["decision"]["reason"] == "forced"

    piped = pointsman.one(
        "ask", "-", "--route", "standard", "--json", "-q", stdin="Where is the spare bilge pump kept?\n"
    )
    assert piped["answer"] == answer["answer"]

    trace = pointsman.one("trace", answer["request_id"], "--json")
    assert trace["state"] == "done"
    assert trace["entries"][-1]["kind"] == "completed"

    lines = pointsman.lines(
        "classify", "-", "--json", stdin='{"id": "a", "question": "Where is the pump?"}\n{"id": "b"}\nno json\n', code=1
    )
    assert set(lines[0]) == {"id", "question", "complex_probability", "route", "reason", "model_version"}
    assert lines[0]["id"] == "a"
    assert lines[1]["id"] == "b"
    assert "question" in lines[1]["error"]
    assert set(lines[2]) == {"id", "error"}


def test_a_bad_question_in_a_file_gets_an_error_in_its_place_and_the_rest_are_answered(pointsman: CommandLine) -> None:
    pointsman("ingest", "-", stdin=jsonl(DOCUMENTS))
    rows = '{"id": "a", "question": ""}\n{"id": "\\ud800", "question": "\\ud800"}\n[]\n'
    rows += '{"id": "d", "question": "Where is the spare bilge pump kept?"}\n'
    (pointsman.folder / "questions.jsonl").write_text(rows)
    for command in (("ask", "--file", "-"), ("ask", "-"), ("ask", "questions.jsonl"), ("classify", "-")):
        lines = pointsman.lines(*command, "--json", stdin=rows, code=1)
        assert [line["id"] for line in lines] == ["a", "?", "3", "d"]
        assert [set(line) == {"id", "error"} for line in lines] == [True, True, True, False]
        assert "surrogate" in lines[1]["error"]


def test_what_is_refused_is_named_and_the_rest_goes_in(pointsman: CommandLine) -> None:
    rows = jsonl(DOCUMENTS) + "not json\n" + json.dumps({"id": "empty"}) + "\n"
    report = pointsman.one("ingest", "-", "--json", stdin=rows, code=1)
    assert report["added"] == 2
    assert [each["line"] for each in report["rejected"]] == [3, 4]
    assert pointsman.one("ingest", "nowhere.md", "--json", code=1)["rejected_count"] == 1


def test_doctor_and_config_tell_what_is_there(pointsman: CommandLine) -> None:
    findings = pointsman.one("doctor", "--json")["findings"]
    status = {finding["part"]: finding["status"] for finding in findings}
    assert (status["database"], status["schema"], status["embedder"]) == ("ok", "ok", "ok")
    assert status["llm"] == "warning"
    config = pointsman.one("config", "--json")
    assert config["server"]["port"] == 0
    assert "postgres" not in json.dumps(config["database"])


def test_usage_and_settings_errors_exit_2_with_a_sentence(pointsman: CommandLine) -> None:
    pointsman("ask", code=2)
    pointsman("frobnicate", code=2)
    pointsman.environment["POINTSMAN_SERVER__HOST"] = "0.0.0.0"
    pointsman("serve", code=2)
    assert "POINTSMAN_SERVER__HOST" in pointsman.stderr
    pointsman.environment["POINTSMAN_SERVER__HOST"] = "127.0.0.1"
    pointsman.environment["POINTSMAN_ROUTING__THRESHOLD"] = "7"
    pointsman("config", code=2)
    assert "routing.threshold" in pointsman.stderr
    pointsman.environment["POINTSMAN_FOO__BAR"] = "1"
    pointsman("config", code=2)
    assert "no section [foo]" in pointsman.stderr
    del pointsman.environment["POINTSMAN_FOO__BAR"]
    pointsman.environment["POINTSMAN_LLM__MODLE"] = "m"
    del pointsman.environment["POINTSMAN_ROUTING__THRESHOLD"]
    pointsman("config", code=2)
    assert "[llm] has base_url" in pointsman.stderr
    del pointsman.environment["POINTSMAN_LLM__MODLE"]
    pointsman.environment["POINTSMAN_DATA_DIR"] = "/proc/nowhere"
    pointsman("serve", code=2)
    assert "POINTSMAN_DATA_DIR" in pointsman.stderr


def test_a_missing_file_of_questions_is_not_asked_as_a_question(pointsman: CommandLine) -> None:
    pointsman("ask", "typo.jsonl", code=2)
    assert "typo.jsonl" in pointsman.stderr


def test_an_empty_export_does_not_prune_a_collection_away(pointsman: CommandLine) -> None:
    pointsman("ingest", "-", stdin=jsonl(DOCUMENTS))
    report = pointsman.one("ingest", "-", "--prune", "--json", stdin="")
    assert report["pruned"] == 0
    assert "no documents" in report["prune_skipped"]
    assert pointsman.one("ingest", "-", "--prune", "--json", stdin=jsonl(DOCUMENTS[:1]))["pruned"] == 1


def test_a_model_that_is_named_is_used_whatever_server_runs_and_refused_where_it_is_none(
    pointsman: CommandLine,
) -> None:
    line = '{"id": "a", "question": "Where is the pump?"}\n'
    folder = pointsman.folder / "mine"
    shutil.copytree(SHIPPED, folder)
    with serving(pointsman):
        assert pointsman.one("classify", "-", "--model", str(folder), "--json", stdin=line)["reason"] == "classifier"
        for bad in ("damaged", "nothing"):
            if bad == "damaged":
                arrays = folder / "model.npz"
                arrays.write_bytes(arrays.read_bytes()[:-9] + b"x" * 9)
            pointsman("classify", "-", "--model", str(folder if bad == "damaged" else folder / bad), stdin=line, code=1)
            assert "model" in pointsman.stderr


def test_labels_come_from_a_file_or_stdin_and_refused_lines_are_told(pointsman: CommandLine) -> None:
    rows = [{"question": f"Where is pump {n}?", "label": "simple"} for n in range(12)]
    rows += [{"question": f"Compare pump {n} with what was there before it.", "label": "complex"} for n in range(12)]
    (pointsman.folder / "labels.jsonl").write_text(jsonl(rows))
    for given in (("labels.jsonl",), ("--file", "labels.jsonl"), ("-",)):
        report = pointsman.one("train", *given, "--output", "model", "--json", stdin=jsonl(rows))
        assert report["labels"]["used"] == len(rows)
    report = pointsman.one("train", "-", "--output", "model", "--json", stdin=jsonl(rows) + "no label\n", code=1)
    assert report["labels"]["refused"] == 1
    pointsman("train", "--output", "model", code=2)


def test_failed_work_exits_1_with_a_sentence(pointsman: CommandLine) -> None:
    pointsman("ask", "Where is the pump?", "--collection", "nowhere", "--quiet", code=1)
    assert "nowhere" in pointsman.stderr
    pointsman("trace", "unknown", code=1)
    assert "unknown" in pointsman.stderr
    pointsman.environment["POINTSMAN_DATABASE__URL"] = "postgresql://nobody:sesame@127.0.0.1:1/none"
    pointsman.environment["POINTSMAN_DATABASE__CONNECT_TIMEOUT_SECONDS"] = "1"
    pointsman("ask", "Where is the pump?", code=1)
    assert "sesame" not in pointsman.stderr


def test_the_backup_command_that_doctor_names_makes_one(pointsman: CommandLine) -> None:
    del pointsman.environment["POINTSMAN_DATABASE__URL"]
    pointsman("ingest", "-", stdin=jsonl(DOCUMENTS))
    with serving(pointsman):
        findings = {each["part"]: each for each in pointsman.one("doctor", "--json")["findings"]}
        command = findings["backup"]["facts"]["command"]
        subprocess.run(command, shell=True, check=True, cwd=pointsman.folder, timeout=60)
    assert "password" not in command.replace("postgres/password", "")
    assert (pointsman.folder / "pointsman.dump").read_bytes().startswith(b"PGDMP")


@contextmanager
def serving(pointsman: CommandLine) -> Iterator[subprocess.Popen[str]]:
    process = pointsman.start("serve")
    try:
        note = pointsman.folder / "data" / "server.json"
        until = time.monotonic() + 60
        while not note.exists() and time.monotonic() < until:
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            time.sleep(0.05)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=30)


@pytest.fixture
def server(pointsman: CommandLine) -> Iterator[subprocess.Popen[str]]:
    with serving(pointsman) as process:
        yield process


def test_commands_find_the_server_of_their_data_directory(
    pointsman: CommandLine, server: subprocess.Popen[str]
) -> None:
    note = json.loads((pointsman.folder / "data" / "server.json").read_text())
    assert note["pid"] == server.pid
    pointsman("ingest", "-", stdin=jsonl(DOCUMENTS))
    answer = pointsman.one("ask", "Where is the spare bilge pump kept?", "--json", "-q")
    assert answer["answer"]
    assert pointsman.one("doctor", "--json")["findings"][0]["facts"]["target"] == f"127.0.0.1:{note['port']}"
    pointsman("serve", code=1)
    assert "another server already runs" in pointsman.stderr
    there = pointsman.one("ingest", "-", "--server", f"127.0.0.1:{note['port']}", "--json", stdin=jsonl(DOCUMENTS))
    assert there["unchanged"] == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_stops_cleanly(pointsman: CommandLine, server: subprocess.Popen[str], number: int) -> None:
    server.send_signal(number)
    assert server.wait(30) == 0
    assert not (pointsman.folder / "data" / "server.json").exists()


def test_the_note_of_a_killed_server_misleads_nobody(pointsman: CommandLine, server: subprocess.Popen[str]) -> None:
    server.kill()
    server.wait(30)
    assert (pointsman.folder / "data" / "server.json").exists()
    assert pointsman.one("doctor", "--json")["findings"][0]["facts"]["target"] is None
    with server_lock(pointsman.folder / "data"):  # the next one, before it listens
        assert pointsman.one("doctor", "--json")["findings"][0]["facts"]["target"] is None


def test_a_second_signal_does_not_wait_for_calls_in_flight(pointsman: CommandLine) -> None:
    pointsman("ingest", "-", stdin=jsonl(DOCUMENTS))
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a language model that takes calls and never answers
        pointsman.environment["POINTSMAN_LLM__BASE_URL"] = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        pointsman.environment["POINTSMAN_LLM__MODEL"] = "silent"
        with serving(pointsman) as server:
            asking = pointsman.start("ask", "Where is the spare bilge pump kept?", "--route", "standard")
            time.sleep(4)
            server.send_signal(signal.SIGTERM)
            time.sleep(1)
            assert server.poll() is None
            server.send_signal(signal.SIGTERM)
            assert server.wait(10) == 130
            asking.kill()
            asking.communicate(timeout=30)
