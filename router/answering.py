"""The two routes as the gateway calls them: put together from the parts of standard/ and agentic/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentic.checkpoint import RunSaver
from agentic.compression import LlmCompressor
from agentic.controllers.offline import offline_pattern
from agentic.critique import Critic
from agentic.patterns import llm_patterns
from agentic.run import answer_agentic, make_parts, resume_agentic
from agentic.writer import StandardWriter
from router.configs import allowed_addresses, llm_config
from router.journal.store import thread_of
from standard.context import ContextConfig
from standard.database.pool import translated_errors
from standard.llm.protocol import Purpose
from standard.pipeline import StandardConfig, answer_standard
from standard.sandbox.guarded_llm import guarded

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from agentic.library import Embed, Library
    from agentic.run import AgenticParts
    from agentic.settings import AgenticSettings
    from router.parts import ResumeHandler, RouteHandler
    from router.settings import Settings
    from router.telemetry.metrics import Metrics
    from standard.database.pool import Pool
    from standard.domain.event import Emit
    from standard.domain.outcome import RouteResult
    from standard.domain.passage import SearchResult
    from standard.domain.question import Question
    from standard.llm.protocol import Llm


def make_agentic(
    library: Library,
    embed: Embed,
    llm: Llm | None,
    settings: AgenticSettings,
    answer_tokens: int,
    pool: Pool | None = None,
    allowed_addresses: tuple[str, ...] = (),
) -> AgenticParts:
    """The loop's parts. With a pool, runs keep checkpoints in the database and can go on elsewhere."""
    llm = None if llm is None else guarded(llm)
    return make_parts(
        library,
        embed,
        StandardWriter(llm, answer_tokens=answer_tokens),
        offline_pattern(),
        patterns=llm_patterns(llm),
        settings=settings,
        compress=None if llm is None else LlmCompressor(llm),
        critic=None if llm is None else Critic(llm),
        checkpointer=None if pool is None else RunSaver(pool),
        allowed_addresses=allowed_addresses,
    )


def agentic_handler(parts: AgenticParts, *, aside: bool = False) -> RouteHandler:
    """The agentic route; `aside` keeps no checkpoints, since nobody goes on with such a run."""

    async def handle(
        question: Question,
        vector: NDArray[np.float32],
        first: SearchResult,
        *,
        emit: Emit,
        may_escalate: bool,  # noqa: ARG001 - nothing lies beyond this route
    ) -> RouteResult:
        thread = "" if aside else thread_of(question.scope.tenant, question.request_id)
        with translated_errors():  # the checkpoints'; everything else translates its own
            return await answer_agentic(question, first, vector, parts=parts, emit=emit, thread=thread)

    return handle


def resume_handler(parts: AgenticParts) -> ResumeHandler | None:
    """What goes on with an agentic run from its checkpoint; None where none are kept."""
    if parts.checkpointer is None:
        return None

    async def handle(question: Question, *, emit: Emit, replies: Sequence[str]) -> RouteResult:
        thread = thread_of(question.scope.tenant, question.request_id)
        with translated_errors():
            return await resume_agentic(question, parts=parts, emit=emit, thread=thread, replies=replies)

    return handle


def standard_handler(llm: Llm | None, embed: Embed, settings: Settings, metrics: Metrics) -> RouteHandler:
    """The standard route."""
    config = llm_config(settings)
    price = config.prices.get(config.model_for(Purpose.ANSWER)) if config is not None else None
    standard = StandardConfig(
        context=ContextConfig(
            context_tokens=settings.llm.context_tokens, max_output_tokens=settings.llm.max_output_tokens
        ),
        timeout_seconds=settings.llm.timeout_seconds,
        price=price,
        allowed_addresses=allowed_addresses(settings),
    )
    llm = None if llm is None else guarded(llm)
    dropped = metrics.citations.labels("dropped")

    async def handle(
        question: Question,
        vector: NDArray[np.float32],
        first: SearchResult,
        *,
        emit: Emit,
        may_escalate: bool,
    ) -> RouteResult:
        async def compare(sentences: Sequence[str]) -> NDArray[np.float32]:
            similarities: NDArray[np.float32] = await embed(sentences) @ vector
            return similarities

        return await answer_standard(
            question,
            first,
            llm=llm,
            emit=emit,
            config=standard,
            may_escalate=may_escalate,
            compare=compare,
            on_dropped=dropped.inc,
        )

    return handle
