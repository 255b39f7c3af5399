"""A scripted model server: real HTTP, the OpenAI API, and any misbehaviour a test asks for.

    async with ModelServer([Reply("Forty [S1]."), Failure(429, retry_after=0.1), Hang()]) as server:
        ...  # server.base_url, server.requests

A script is a list of behaviours, one a chat request, or a function from the recorded request to a behaviour. When a
list runs out the server answers 410 and says so, so that a test that calls once too often fails loudly;
`always(behaviour)` never runs out.
"""

from tests.support.model_server.behaviour import (
    Behaviour,
    Call,
    Failure,
    Hang,
    Raw,
    Reply,
    Script,
    always,
    failing,
    json_reply,
    repeating_itself,
    tool_caller,
)
from tests.support.model_server.obedient import echoing, obedient
from tests.support.model_server.record import Recorded
from tests.support.model_server.server import ModelServer

__all__ = [
    "Behaviour",
    "Call",
    "Failure",
    "Hang",
    "ModelServer",
    "Raw",
    "Recorded",
    "Reply",
    "Script",
    "always",
    "echoing",
    "failing",
    "json_reply",
    "obedient",
    "repeating_itself",
    "tool_caller",
]
