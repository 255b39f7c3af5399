"""The first look at a question: understood, embedded, read and searched once, for the decision and both routes.

What needs nothing of each other runs at once: the text is read and its parts are embedded beside the search.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import structlog

from router.asked import asked_text, embedded_text
from router.decide import Signals
from router.followup import SESSION_TURNS, understood
from router.journal.question import turns_of
from standard import spans
from standard.domain.answer import Timings, Usage
from standard.domain.errors import PointsmanError
from standard.tasks import task_group

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import numpy as np
    from numpy.typing import NDArray

    from router.parts import GatewayParts, RoutingModels
    from router.routing.evidence import EmbeddedParts
    from router.routing.models import TextReading
    from standard.domain.passage import SearchResult
    from standard.domain.question import Question

_LOOKED_THROUGH: Final = 20
"""Latest questions of a session among which those are found that the caller may see."""
_log = structlog.get_logger("pointsman.run")


@dataclass(slots=True)
class Clockwork:
    """Timings of a run while it is made; seconds, `started` on the performance counter."""

    started: float
    embed: float = 0.0
    decide: float = 0.0
    retrieve: float = 0.0
    first_token: float = 0.0

    def timings(self) -> Timings:
        """The timings so far."""
        return Timings(self.embed, self.decide, self.retrieve, self.first_token, time.perf_counter() - self.started)


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What is known when the route is chosen; `vector` is the question's embedding (d,).

    `question` is the question as understood, with the style of its collection; `learned` tells whether understanding
    changed it, `condensing` what that cost.
    """

    question: Question
    vector: NDArray[np.float32]
    first: SearchResult
    signals: Signals
    learned: bool = False
    condensing: Usage = Usage()


async def first_look(
    parts: GatewayParts, asked: Question, clock: Clockwork, is_ours: Callable[[], Awaitable[bool]] | None = None
) -> FirstLook:
    """Look at a question; `clock` takes the timings. A classifier that fails costs its signals, never the answer.

    No model is paid where `is_ours` says no: the run is done, or another worker's, and nobody needs this look.
    """
    models = parts.models()
    found = await understood(await _remembered(parts, asked), parts.llm, is_ours)
    question = found.question
    async with task_group() as group:
        reading = None if models is None else group.create_task(_read(models, question))
        at = time.perf_counter()
        vector = await parts.embed(embedded_text(question))
        now = time.perf_counter()
        clock.embed = now - at
        parts.metrics.embedded(clock.embed)
        # Its parts come after it so that the search does not wait for them.
        embedding = None if models is None else group.create_task(_embed_parts(models, question))
        first = await parts.retriever.search(question.scope, asked_text(question), vector, k=question.top_k)
        at = time.perf_counter()
        clock.retrieve = at - now
        parts.metrics.retrieved(first)
        question = await styled(parts, question)
        signals = Signals()
        if models is not None and reading is not None and embedding is not None:
            with spans.span("pointsman.decide"):
                signals = await _signals(models, await reading, vector, first, await embedding)
    clock.decide = time.perf_counter() - at
    return FirstLook(question, vector, first, signals, found.question is not asked, found.usage)


async def styled(parts: GatewayParts, question: Question) -> Question:
    """The question with how answers of its collection are written; after a search that is at hand."""
    if parts.style is None:
        return question
    return replace(question, style=await parts.style(question.scope))


async def _remembered(parts: GatewayParts, question: Question) -> Question:
    """The question with its session's last turns, where it brings no history of its own and texts may be kept."""
    if question.history or not question.session_id or parts.journal.consent != "text":
        return question
    scope = question.scope
    said = await parts.journal.session(scope.tenant, question.session_id, question.request_id, _LOOKED_THROUGH)
    visible = [turns for asked, answer in said if (turns := turns_of(asked, answer, scope))]
    return replace(question, history=tuple(turn for turns in visible[-SESSION_TURNS:] for turn in turns))


async def _read(models: RoutingModels, question: Question) -> TextReading | None:
    try:
        with spans.span("pointsman.classify", {"pointsman.model_version": models.version}):
            return await models.read(question)
    except Exception:  # noqa: BLE001 - a broken classifier must never cost an answer
        _log.exception("the classifier failed; taking the safe route")
    return None


async def _embed_parts(models: RoutingModels, question: Question) -> EmbeddedParts | Exception | None:
    """Embed the question's parts; what goes wrong is raised by `_signals`, which knows what follows from it."""
    try:
        return await models.embed_parts(question)
    except Exception as error:  # noqa: BLE001 - as above
        return error


async def _signals(
    models: RoutingModels,
    reading: TextReading | None,
    vector: NDArray[np.float32],
    first: SearchResult,
    embedded: EmbeddedParts | Exception | None,
) -> Signals:
    if reading is not None:
        try:
            if isinstance(embedded, Exception):
                raise embedded
            return await models.signals(reading, vector, first, embedded)
        except PointsmanError as error:
            _log.warning("the classifier is away; taking the safe route", error=error.message)
        except Exception:  # noqa: BLE001 - a broken classifier must never cost an answer
            _log.exception("the classifier failed; taking the safe route")
    return Signals(model_version=models.version)
