"""What the server remembers of a request."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Recorded:
    """One HTTP request and what became of it. Times are the event loop's (loop.time()).

    `finished` is set once the whole response was written; `client_gone` when the client closed the connection before
    that. `number` counts chat requests from 0 (-1 for others).
    """

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    arrived: float
    number: int = -1
    finished: float | None = None
    client_gone: float | None = None
    status: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def streamed(self) -> bool:
        """Whether a stream was asked for."""
        return bool(self.body.get("stream"))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The chat messages as sent."""
        messages = self.body.get("messages", [])
        assert isinstance(messages, list)
        return messages

    @property
    def tool_names(self) -> list[str]:
        """Names of the tools offered."""
        return [tool["function"]["name"] for tool in self.body.get("tools", [])]

    def text(self, *roles: str) -> str:
        """Text of all messages of these roles (default: every role), with a blank line between messages."""
        return "\n\n".join(
            message_text(message) for message in self.messages if not roles or message.get("role") in roles
        )


def message_text(message: dict[str, Any]) -> str:
    """The text of one chat message, its tool calls included as JSON."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    calls = message.get("tool_calls")
    return f"{content}\n{json.dumps(calls)}" if calls else str(content)
