"""A small collection in memory and a client of the scripted model server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from rich.console import Console

from router.application import Application, open_application
from router.cli.demo import demo_folder
from router.cli.ingest import ingest_paths
from router.settings import load_settings
from standard.llm.client import OpenAiLlm
from standard.llm.config import LlmConfig
from tests.support.memory_retriever import MemoryLibrary, passage
from tests.support.model_server import ModelServer


@pytest.fixture
def library() -> MemoryLibrary:
    return MemoryLibrary(
        [
            passage("kittiwake", "The ferry Kittiwake is 30 metres long and sails to Port Ness.", title="Kittiwake"),
            passage("razorbill", "Razorbill is 40 metres long; her captain is Anna Berg.", title="Razorbill"),
            passage("berg", "Anna Berg was born in 1970 and joined in 1999.", title="Anna Berg"),
            passage("ness", "Port Ness has two piers and a slipway.", title="Port Ness"),
            passage("lost", "Lost property is kept for ninety days.", title="Lost property"),
            passage("pets", "Dogs travel free on deck.", title="Pets"),
        ]
    )


@pytest_asyncio.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


@pytest_asyncio.fixture
async def llm(server: ModelServer) -> AsyncIterator[OpenAiLlm]:
    async with OpenAiLlm(LlmConfig(server.base_url, "scripted", retries=0, connect_seconds=1.0)) as client:
        yield client


@pytest_asyncio.fixture
async def demo(database_url: str, tmp_path: Path, server: ModelServer) -> AsyncIterator[Application]:
    """An application over the demo corpus, with the scripted model server for its model."""
    settings = load_settings(
        data_dir=tmp_path,
        database={"url": database_url},
        llm={"base_url": server.base_url, "model": "scripted"},
        agentic={"controller": "decide"},
    )
    async with open_application(settings) as opened:
        await ingest_paths(opened, [str(demo_folder() / "corpus")], "default", prune=True, console=Console(quiet=True))
        yield opened
