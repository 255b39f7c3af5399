"""`pointsman keys`, and the commands that bring one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.command_line import CommandLine, jsonl, served

if TYPE_CHECKING:
    from pathlib import Path

WHERE = "Where is the spare bilge pump kept?"
PUMP = [{"id": "pump", "title": "Spare pump", "text": "The spare bilge pump is kept in the shed at Alder Wharf."}]


@pytest.fixture
def pointsman(tmp_path: Path, database_url: str) -> CommandLine:
    line = CommandLine(tmp_path, database_url)
    line.environment["POINTSMAN_AUTH__MODE"] = "keys"
    return line


def test_keys_are_made_listed_and_revoked(pointsman: CommandLine) -> None:
    made = pointsman.one(
        "keys", "create", "--tenant", "acme", "--collections", "a,b", "--groups", "deck", "--expires", "90d",
        "--note", "the bridge", "--json",
    )  # fmt: skip
    assert made["key"].startswith(f"pm_{made['id']}_")
    assert (made["tenant"], made["role"], made["state"]) == ("acme", "user", "active")
    assert (made["collections"], made["groups"], made["note"]) == (["a", "b"], ["deck"], "the bridge")
    assert made["expires_at"] > made["created_at"]
    pointsman("keys", "create", "--tenant", "bolt", "--role", "admin")
    listed = pointsman.lines("keys", "list", "--json")
    assert [(each["tenant"], each["role"]) for each in listed] == [("acme", "user"), ("bolt", "admin")]
    assert made["key"] not in json.dumps(listed)
    assert "bolt" in pointsman("keys", "list")
    assert pointsman.one("keys", "revoke", made["id"], "--json")["state"] == "revoked"
    assert [each["state"] for each in pointsman.lines("keys", "list", "--tenant", "acme", "--json")] == ["revoked"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["create", "--tenant", "a b"], "tenant"),
        (["create", "--tenant", "a", "--role", "king"], "role"),
        (["create", "--tenant", "a", "--expires", "soon"], "expires"),
        (["create", "--tenant", "a", "--expires", "0d"], "expires"),
        (["create", "--tenant", "a", "--role", "admin", "--collections", "x"], "collections"),
        (["revoke", "000000000000"], "no key"),
    ],
)
def test_what_makes_no_key_is_refused(pointsman: CommandLine, arguments: list[str], problem: str) -> None:
    pointsman("keys", *arguments, code=1)
    assert problem in pointsman.stderr


def test_client_commands_bring_the_key_that_a_server_wants(pointsman: CommandLine) -> None:
    pointsman.one("ingest", "-", "--tenant", "acme", "--json", stdin=jsonl(PUMP))
    key = pointsman.one("keys", "create", "--tenant", "acme", "--json")["key"]
    admin = pointsman.one("keys", "create", "--tenant", "acme", "--role", "admin", "--json")["key"]
    with served(pointsman):
        pointsman("ask", WHERE, "--json", "-q", code=1)
        assert "UNAUTHENTICATED" in pointsman.stderr
        answer = pointsman.one("ask", WHERE, "--json", "-q", "--key", key)
        assert "shed at Alder Wharf" in answer["answer"]
        pointsman("trace", answer["request_id"], "--json", "--key", key, code=1)
        assert "PERMISSION_DENIED" in pointsman.stderr
        pointsman.environment["POINTSMAN_API_KEY"] = admin
        assert pointsman.one("trace", answer["request_id"], "--json")["state"] == "done"


def test_a_command_without_a_server_needs_no_key_and_takes_one(pointsman: CommandLine) -> None:
    pointsman.one("ingest", "-", "--json", stdin=jsonl(PUMP))
    assert "shed" in pointsman.one("ask", WHERE, "--json", "-q")["answer"]
    key = pointsman.one("keys", "create", "--tenant", "acme", "--json")["key"]
    pointsman("ask", WHERE, "--json", "-q", "--key", key, code=1)  # acme has no collection
    assert "no collection" in pointsman.stderr
