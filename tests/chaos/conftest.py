"""One gateway process and its scripted model for the tests of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from tests.chaos.gateway_process import WHERE, Served, gateway
from tests.support.model_server import ModelServer, Reply, always

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

GENERATED = Reply("It is in the shed at Alder Wharf [S1].")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def model() -> AsyncIterator[ModelServer]:
    """A model that answers well, until a test changes its script."""
    async with ModelServer(always(GENERATED)) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory, model: ModelServer) -> AsyncIterator[Served]:
    """A gateway that has answered a few questions, so that what it holds from here on is what it always holds."""
    model.script = always(GENERATED)
    async with gateway(tmp_path_factory.mktemp("chaos"), model=model) as running:
        for _ in range(8):
            await running.client.answer(WHERE)
        yield running
