"""`pointsman reembed`, from the start to the end of a change, with and without a server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.command_line import CommandLine, jsonl, served
from tests.support.model_server.behaviour import Failure
from tests.support.two_embedders import DIMENSIONS, second_server

if TYPE_CHECKING:
    from pathlib import Path

WHERE = "Where is the spare bilge pump kept?"
NOTES = [
    {"id": "pump", "title": "Spare pump", "text": "The spare bilge pump is kept in the shed at Alder Wharf."},
    {"id": "lamp", "title": "Lantern", "text": "The harbour lantern burns paraffin and is lit at dusk every day."},
]


@pytest.fixture
def pointsman(tmp_path: Path, database_url: str) -> CommandLine:
    line = CommandLine(tmp_path, database_url)
    (tmp_path / "notes.jsonl").write_text(jsonl(NOTES))
    (tmp_path / "asked.jsonl").write_text(jsonl([{"question": WHERE, "supporting_ids": ["pump"]}]))
    line("ingest", "notes.jsonl", "--collection", "notes")
    return line


async def test_a_collection_is_changed_from_the_command_line_alone(pointsman: CommandLine) -> None:
    async with second_server() as server:
        chosen = ("--model", "openai:second", "--base-url", server.base_url)
        started = await asyncio.to_thread(pointsman.one, "reembed", "start", "notes", *chosen, "--json")
        assert (started["state"], started["remaining"], started["documents"]) == ("ready", 0, 2)
        assert started["new"]["dimensions"] == DIMENSIONS
        assert started["disk_bytes_needed"] > 0
        compared = await asyncio.to_thread(pointsman.one, "reembed", "compare", "notes", "asked.jsonl", "--json")
        assert (compared["judged"], compared["new_recall"], compared["sampled"]) == (1, 1.0, False)
        assert "sentences of the collection" in await asyncio.to_thread(pointsman, "reembed", "compare", "notes")
        switched = await asyncio.to_thread(pointsman.one, "reembed", "switch", "notes", "--json")
        assert switched["state"] == "switched"
        answer = await asyncio.to_thread(pointsman.one, "ask", WHERE, "--collection", "notes", "--json")
        assert [each["document_id"] for each in answer["citations"]] == ["pump"]
        assert "the way back" in await asyncio.to_thread(pointsman, "reembed", "status", "notes")
        assert "ready" in await asyncio.to_thread(pointsman, "reembed", "rollback", "notes")
        await asyncio.to_thread(pointsman, "reembed", "switch", "notes")
        done = await asyncio.to_thread(pointsman, "reembed", "finish", "notes")
        assert "notes is embedded with openai:second" in done
        await asyncio.to_thread(pointsman, "reembed", "status", "notes", code=1)
        assert "is not being changed" in pointsman.stderr


async def test_what_goes_wrong_is_said_with_the_way_out(pointsman: CommandLine) -> None:
    async with second_server() as server:
        chosen = ("--model", "openai:second", "--base-url", server.base_url)
        await asyncio.to_thread(pointsman, "reembed", "switch", "notes", code=1)
        assert "pointsman reembed start" in pointsman.stderr
        server.embedding_failure = Failure(401, "who are you?")
        await asyncio.to_thread(pointsman, "reembed", "start", "notes", *chosen, code=1)
        assert "check embedding.api_key" in pointsman.stderr
        server.embedding_failure = None
        await asyncio.to_thread(pointsman, "reembed", "start", "notes", *chosen, "--no-wait", "--json")
        await asyncio.to_thread(pointsman, "reembed", "compare", "notes", "nowhere.jsonl", code=1)
        assert "nowhere.jsonl" in pointsman.stderr
        assert "cancelled" in await asyncio.to_thread(pointsman, "reembed", "cancel", "notes")


async def test_a_server_does_the_work_while_commands_come_and_go(pointsman: CommandLine) -> None:
    async with second_server() as server:
        chosen = ("--model", "openai:second", "--base-url", server.base_url)

        def commands() -> str:
            with served(pointsman):
                pointsman("reembed", "start", "notes", *chosen, "--no-wait")
                pointsman("reembed", "status", "notes", "--wait")
                pointsman("reembed", "switch", "notes")
                return pointsman("ask", WHERE, "--collection", "notes")

        assert "Alder Wharf" in await asyncio.to_thread(commands)


def test_collections_are_made_listed_shown_and_changed(pointsman: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "style.txt").write_text("Be brief.\nSign as the crew.")
    made = pointsman.one("collection", "create", "log", "--text-config", "german", "--answer-language", "de", "--json")
    assert (made["name"], made["text_config"], made["answer_language"]) == ("log", "german", "de")
    changed = pointsman.one("collection", "update", "log", "--answer-instructions", "@style.txt", "--json")
    assert (changed["answer_instructions"], changed["answer_language"]) == ("Be brief.\nSign as the crew.", "de")
    assert "Sign as the crew" in pointsman("collection", "show", "log")
    assert [each["name"] for each in pointsman.lines("collection", "list", "--json")] == ["log", "notes"]
    pointsman("collection", "update", "log", code=2)
    pointsman("collection", "update", "log", "--answer-language", "german", code=1)
    assert "answer_language" in pointsman.stderr
