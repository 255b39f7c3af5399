"""A model server, a client of it, and what its observer saw; requests to make, and both ways to make them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypedDict, Unpack

import pytest

from standard.domain.errors import LlmUnavailable
from standard.llm.client import OpenAiLlm
from standard.llm.config import LlmConfig, Price
from standard.llm.observer import LlmCall
from standard.llm.protocol import Completion, LlmRequest, Message, Purpose
from standard.sandbox.prompt import PromptText
from tests.support.model_server import (
    ModelServer,
    Recorded,
    Script,
)


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


class Rig:
    """A server, a client of it, and what the observer saw."""

    def __init__(self, server: ModelServer, llm: OpenAiLlm, observer: CountingObserver) -> None:
        self.server = server
        self.llm = llm
        self.observer = observer


class Settings(TypedDict, total=False):
    prices: dict[str, Price]
    models: dict[Purpose, str]
    first_token_seconds: float
    idle_seconds: float
    retries: int
    max_concurrency: int
    max_waiting: int


@asynccontextmanager
async def rig(
    script: Script, *, lacks: tuple[str, ...] = (), api_key: str = "", **config: Unpack[Settings]
) -> AsyncIterator[Rig]:
    async with ModelServer(script, lacks=lacks, api_key=api_key) as server:
        observer = CountingObserver()
        settings = LlmConfig(server.base_url, "scripted", api_key=api_key, backoff_seconds=0.01)
        async with OpenAiLlm(replace(settings, **config), observer) as llm:
            yield Rig(server, llm, observer)


async def streamed(llm: OpenAiLlm, request: LlmRequest) -> tuple[list[str], Completion]:
    pieces: list[str] = []
    async for item in llm.stream(request):
        if isinstance(item, Completion):
            return pieces, item
        pieces.append(item)
    pytest.fail("the stream ended without a completion")


async def failed(llm: OpenAiLlm, request: LlmRequest, *, stream: bool) -> LlmUnavailable:
    with pytest.raises(LlmUnavailable) as caught:
        await (streamed(llm, request) if stream else llm.complete(request))
    return caught.value


both_ways = pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])


async def outcome(llm: OpenAiLlm, request: LlmRequest, *, stream: bool) -> Completion:
    return (await streamed(llm, request))[1] if stream else await llm.complete(request)


async def until_gone(request: Recorded, within_seconds: float = 0.5) -> float:
    async with asyncio.timeout(within_seconds):
        while request.client_gone is None:  # noqa: ASYNC110 - the server notes a time, it has no event to wait for
            await asyncio.sleep(0.002)
    return request.client_gone
