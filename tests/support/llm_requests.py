"""Requests and observers for tests of the LLM client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from standard.llm.protocol import LlmRequest, Message, Purpose
from standard.sandbox.prompt import PromptText

if TYPE_CHECKING:
    from standard.llm.observer import LlmCall


def asking(
    text: str = "How high may the wind be?", *, max_tokens: int = 200, timeout_seconds: float = 5.0
) -> LlmRequest:
    """A plain question to the model."""
    messages = (Message("system", PromptText("Answer.")), Message("user", PromptText(text)))
    return LlmRequest(Purpose.ANSWER, messages, max_tokens=max_tokens, timeout_seconds=timeout_seconds)


class CountingObserver:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.calls: list[LlmCall] = []
        self.failed: list[str] = []

    def call_ended(self, call: LlmCall) -> None:
        self.calls.append(call)

    def attempt_failed(self, purpose: Purpose, kind: str) -> None:  # noqa: ARG002 - the protocol's signature
        self.failed.append(kind)
