"""Golden questions: asked on a schedule, to see that what users get is still right although every part looks healthy.

A question passes when it is answered and every document that is known to hold its answer is cited. The file holds one
question a line: {"id", "question", "supporting_ids": [...]}, the form of an evaluation set. Each round asks all of
them, one after the other, as anybody would: by the policy in force, journaled, counted and paid.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from router.settings import BadSettings
from standard.domain.answer import Outcome
from standard.domain.errors import PointsmanError
from standard.domain.passage import Scope
from standard.domain.question import Budget, Question
from standard.domain.text import UntrustedText
from standard.tasks import task_group

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from prometheus_client import Gauge

    from router.settings import CanarySettings
    from standard.domain.answer import Answer

MOST_QUESTIONS: Final = 100
_LONGEST_FILE: Final = 1_048_576
_KEY: Final = "canary.file (POINTSMAN_CANARY__FILE)"
_log = structlog.get_logger("pointsman.canary")


@dataclass(frozen=True, slots=True)
class GoldenQuestion:
    """A question and the documents that an answer must cite, at least one."""

    id: str
    text: str
    documents: frozenset[str]


def read_golden(file: str) -> tuple[GoldenQuestion, ...]:
    """Read the golden questions, 1 to MOST_QUESTIONS; none where `file` is empty.

    Raises BadSettings, naming the line, for a file that cannot be read or a line that is no golden question.
    """
    if not file:
        return ()
    path = Path(file)
    try:
        if path.stat().st_size > _LONGEST_FILE:
            raise BadSettings([f"{_KEY}: {path} is larger than {_LONGEST_FILE:,} bytes"])
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings([f"{_KEY}: {path} cannot be read: {error}"]) from None
    golden: list[GoldenQuestion] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            golden.append(_golden(json.loads(line), number))
        except ValueError as error:
            problems.append(f"{_KEY}: {path}, line {number}: {error}")
    if len(golden) > MOST_QUESTIONS:
        problems.append(f"{_KEY}: {path} has {len(golden)} questions; at most {MOST_QUESTIONS} are asked")
    if not golden and not problems:
        problems.append(f"{_KEY}: {path} has no question")
    if problems:
        raise BadSettings(problems)
    return tuple(golden)


def _golden(row: Any, number: int) -> GoldenQuestion:  # noqa: ANN401 - whatever the line holds
    if not isinstance(row, dict):
        raise ValueError("not an object")  # noqa: TRY004 - one kind of error for a bad line
    text, documents = row.get("question"), row.get("supporting_ids")
    if not isinstance(text, str) or not text.strip():
        raise ValueError("question: a text is needed")
    if (
        not isinstance(documents, list)
        or not documents
        or not all(isinstance(each, str) and each for each in documents)
    ):
        raise ValueError("supporting_ids: a list of document ids is needed, at least one")
    return GoldenQuestion(str(row.get("id") or number), text, frozenset(documents))


def missing(answer: Answer, golden: GoldenQuestion) -> str:
    """Say what is wrong with the answer to a golden question; "" for nothing."""
    if answer.outcome not in {Outcome.ANSWERED, Outcome.ANSWERED_WITH_CAVEAT}:
        return f"not answered: {answer.outcome.value if answer.outcome else 'no outcome'}"
    uncited = golden.documents - {citation.document_id for citation in answer.citations}
    return f"not cited: {', '.join(sorted(uncited))}" if uncited else ""


@asynccontextmanager
async def watching(
    ask: Callable[[Question], Awaitable[Answer]],
    golden: Sequence[GoldenQuestion],
    settings: CanarySettings,
    gauge: Gauge,
) -> AsyncIterator[None]:
    """Ask the golden questions in rounds for as long as the block runs; nothing where there are none."""
    if not golden:
        yield
        return
    async with task_group() as group:
        rounds = group.create_task(_rounds(ask, golden, settings, gauge), name="canary")
        try:
            yield
        finally:
            rounds.cancel()


async def _rounds(
    ask: Callable[[Question], Awaitable[Answer]],
    golden: Sequence[GoldenQuestion],
    settings: CanarySettings,
    gauge: Gauge,
) -> None:
    while True:
        failed = 0
        for each in golden:
            problem = await _asked(ask, each, settings)
            if problem:
                failed += 1
                _log.warning("a golden question failed", id=each.id, problem=problem)
        gauge.set(0.0 if failed else 1.0)
        _log.debug("golden questions asked", asked=len(golden), failed=failed)
        await asyncio.sleep(settings.interval_seconds)


async def _asked(ask: Callable[[Question], Awaitable[Answer]], golden: GoldenQuestion, settings: CanarySettings) -> str:
    """Ask one question; say what is wrong, "" for nothing. Whatever goes wrong is a failed question, not a stop."""
    seconds = settings.timeout_seconds
    question = Question(
        UntrustedText(golden.text),
        Scope(collection=settings.collection),
        budget=Budget(max_seconds=seconds),
        request_id=f"canary-{uuid.uuid4().hex}",
        deadline=asyncio.get_running_loop().time() + seconds,
        probe=True,
    )
    try:
        async with asyncio.timeout(2 * seconds):  # the deadline ends a healthy run; this one that hangs
            return missing(await ask(question), golden)
    except TimeoutError:
        return f"no answer within {2 * seconds:g} s"
    except PointsmanError as error:
        return error.message
    except Exception as error:  # noqa: BLE001 - what the canary meets must not stop the server that it watches
        _log.exception("a golden question could not be asked", id=golden.id)
        return f"{type(error).__name__}"
