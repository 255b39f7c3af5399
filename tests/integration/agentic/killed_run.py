"""A run in a process of its own, to be killed: python -m tests.integration.agentic.killed_run DATABASE LLM THREAD NODE.

NODE "search" makes the process kill itself in its second retrieval; anything else leaves that to the test.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agentic.checkpoint import open_checkpointer
from agentic.controllers.decide import decide_pattern
from agentic.controllers.offline import offline_pattern
from agentic.run import AgenticParts, answer_agentic, make_parts
from agentic.writer import StandardWriter
from standard.database.pool import DatabaseConfig, Pool, open_pool
from standard.domain.event import EventBody
from standard.domain.passage import RetrievedPassage, Scope
from standard.domain.question import Question
from standard.domain.text import UntrustedText
from standard.llm.client import OpenAiLlm
from standard.llm.config import LlmConfig
from tests.support.memory_retriever import MemoryLibrary, embed, embed_text, passage

QUESTION = "When was the captain of Razorbill born?"


def ships() -> MemoryLibrary:
    return MemoryLibrary(
        [
            passage("razorbill", "Razorbill is 40 metres long; her captain is Anna Berg.", title="Razorbill"),
            passage("berg", "Anna Berg was born in 1970 and joined in 1999.", title="Anna Berg"),
            passage("ness", "Port Ness has two piers and a slipway.", title="Port Ness"),
        ]
    )


class SuicidalLibrary(MemoryLibrary):
    """Dies in the first retrieval of the loop."""

    async def search(
        self, scope: Scope, text: str, vector: NDArray[np.float32], *, k: int
    ) -> Sequence[RetrievedPassage]:
        if text != QUESTION:
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().search(scope, text, vector, k=k)


async def parts_over(pool: Pool, llm: OpenAiLlm, library: MemoryLibrary) -> AgenticParts:
    return make_parts(
        library, embed, StandardWriter(llm), offline_pattern(), patterns={"decide": decide_pattern(llm)},
        checkpointer=await open_checkpointer(pool),
    )  # fmt: skip


async def main(database: str, base_url: str, thread: str, node: str) -> None:
    library = SuicidalLibrary(ships().passages) if node == "search" else ships()

    async def emit(body: EventBody) -> None:
        del body

    config = LlmConfig(base_url, "scripted", retries=0)
    async with open_pool(DatabaseConfig(url=database)) as pool, OpenAiLlm(config) as llm:
        parts = await parts_over(pool, llm, library)
        first = await library.first(QUESTION, 1)
        question = Question(UntrustedText(QUESTION), top_k=1)
        await answer_agentic(question, first, embed_text(QUESTION), parts=parts, emit=emit, thread=thread)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
