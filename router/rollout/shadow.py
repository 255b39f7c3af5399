"""What the agentic route would have answered: asked aside, after a question was answered, and compared.

Prevents: a rollout that slows or fails a question, or spends without a bound. An aside begins when its question has
been answered and recorded; at most `concurrency` run at once, and what comes beyond is left out, not queued. Nothing of
it reaches whoever asked, whatever becomes of it: no event, no error, no charge to the tenant.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog
from psycopg.types.json import Jsonb

from router.access.limits import spent_now
from router.decide import Rollout
from router.evaluation.answers.scoring import f1
from router.journal.codec import kept
from router.rollout.place import shadow_place
from router.telemetry.redaction import tellable
from standard.database.pool import connection
from standard.domain.answer import Outcome
from standard.domain.errors import PointsmanError
from standard.domain.event import SufficiencyJudged
from standard.domain.question import Route
from standard.unicode import storable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from router.decide import Policy
    from router.journal.codec import Consent
    from router.parts import RouteHandler
    from standard.database.pool import Pool
    from standard.domain.answer import Answer
    from standard.domain.event import EventBody
    from standard.domain.outcome import RouteResult
    from standard.domain.passage import SearchResult
    from standard.domain.question import Question

_LOG_EVERY = 100
_log = structlog.get_logger("pointsman.shadow")


@dataclass(frozen=True, slots=True)
class Aside:
    """A question that was answered, with what its answer began from; `vector` is its embedding (d,)."""

    run_id: int
    question: Question
    vector: NDArray[np.float32]
    first: SearchResult
    answer: Answer


def wants_aside(question: Question, answer: Answer, policy: Policy) -> bool:
    """Whether a question is to be answered aside: in shadow, by the standard route, within the sample."""
    return (
        policy.mode is Rollout.SHADOW
        and question.route is None
        and not question.dry_run
        and not question.probe
        and answer.route is Route.STANDARD
        and answer.outcome is not None
        and shadow_place(question) < policy.shadow_sample * 100.0
    )


class Shadow:
    """Answers aside. `agentic` must keep no checkpoints: nobody goes on with an aside."""

    def __init__(
        self,
        agentic: RouteHandler,
        pool: Pool,
        *,
        consent: Consent,
        concurrency: int,
        timeout_seconds: float,
    ) -> None:
        self._agentic = agentic
        self._pool = pool
        self._consent: Consent = consent
        self._places = concurrency
        self._timeout = timeout_seconds
        self.left_out = 0

    def take_place(self) -> bool:
        """Take one of the places; False, and counted in `left_out`, where none is free. `answer` gives it back."""
        if self._places < 1:
            self.left_out += 1
            if self.left_out % _LOG_EVERY == 1:
                _log.info("answers aside are left out: all places are taken", left_out=self.left_out)
            return False
        self._places -= 1
        return True

    async def answer(self, aside: Aside) -> None:
        """Answer aside, compare and store; the place was taken before. Raises nothing but cancellation."""
        spent_now.set(None)  # not the tenant's: the operator asked
        try:
            body = await self._compared(aside)
            await self._store(aside.run_id, body)
        except Exception as error:  # noqa: BLE001 - the edge of an aside: nobody waits for it
            _log.warning(
                "an answer aside could not be kept", request_id=aside.question.request_id, error=tellable(error)
            )
        finally:
            self._places += 1

    async def _compared(self, aside: Aside) -> dict[str, Any]:
        first_judged: bool | None = None

        async def note(body: EventBody) -> None:
            nonlocal first_judged
            if isinstance(body, SufficiencyJudged) and body.step == 1 and first_judged is None:
                first_judged = body.sufficient

        now = asyncio.get_running_loop().time
        question = replace(aside.question, deadline=now() + self._timeout)
        at = time.perf_counter()
        try:
            async with asyncio.timeout(2 * self._timeout):  # the deadline ends a healthy run; this one that hangs
                result = await self._agentic(question, aside.vector, aside.first, emit=note, may_escalate=False)
        except (PointsmanError, TimeoutError) as error:
            return {"error": type(error).__name__, "seconds": time.perf_counter() - at}
        return compared(aside.answer, result, self._consent) | {
            "seconds": time.perf_counter() - at,
            "sufficient_at_first": first_judged,
        }

    async def _store(self, run_id: int, body: dict[str, Any]) -> None:
        async with connection(self._pool) as conn:
            # A run that was erased meanwhile takes its aside with it.
            await conn.execute(
                "insert into shadow_answer (run_id, answer) select run_id, %s from run where run_id = %s"
                " on conflict do nothing",
                (Jsonb(body), run_id),
            )


def compared(answer: Answer, aside: RouteResult, consent: Consent) -> dict[str, Any]:
    """An answer aside as it is kept, and how it compares with the one that was given.

    `word_f1` (0-1) is over the words of both, `document_overlap` (0-1) Jaccard over the documents that they cite, None
    where neither cites any.
    """
    ours = {citation.document_id for citation in answer.citations}
    theirs = {citation.document_id for citation in aside.citations}
    together = ours | theirs
    return {
        "outcome": aside.outcome.value,
        "stop_reason": aside.stop_reason.value,
        "steps": aside.steps,
        "usage": asdict(aside.usage),
        "text": storable(kept(aside.text, consent)),
        "answered": is_answered(aside.outcome),
        "word_f1": f1(aside.text, [answer.text]),
        "document_overlap": len(ours & theirs) / len(together) if together else None,
    }


def is_answered(outcome: Outcome | None) -> bool:
    """Whether somebody got an answer."""
    return outcome in {Outcome.ANSWERED, Outcome.ANSWERED_WITH_CAVEAT}
