"""The measurement itself: sets are brought in, questions asked arm by arm, records kept, figures made of them.

Arms: the answer as asked for; single-shot, to the same answerable questions; and, for the agentic route, a run with
each step budget. Every set's corpus is a collection of its own, as in `router.evaluation.retrieval`; unanswerable
questions with documents held out are asked over a second one without these.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from router.evaluation.answers.asking import GOLD, Arm, Asker, Place
from router.evaluation.answers.figures import figures_of
from router.evaluation.answers.questions import read_answers
from router.evaluation.answers.record import ASKED, SINGLE_SHOT, Ledger, budget_arm
from router.evaluation.qaset import find_sets
from router.evaluation.retrieval import TENANT, ingest_set
from standard.domain.errors import InvalidInput
from standard.domain.passage import Scope
from standard.domain.question import Route
from standard.retrieval.together import all_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from router.application import Application
    from router.evaluation.answers.questions import AnswerSet, AskedQuestion
    from router.evaluation.answers.record import Record

BUDGETS = (1, 2, 3, 5, 8, 12)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured.

    `route` None = decided per question. `controller` None = the settings', GOLD = the gold decomposition. `limit` (0 =
    all) questions of either kind a set, drawn by `seed`; `documents` (0 = all) cuts each corpus. `budgets` are step
    budgets (1-20) that the agentic route is measured with as well; `at_once` questions run at a time.
    """

    names: tuple[str, ...] = ()
    route: Route | None = None
    controller: str | None = None
    limit: int = 0
    documents: int = 0
    seed: int = 0
    top_k: int = 5
    budgets: tuple[int, ...] = ()
    at_once: int = 1

    def checked(self) -> Plan:
        """The plan. Raises InvalidInput where parts of it do not fit together."""
        if self.controller is not None and self.route is Route.STANDARD:
            raise InvalidInput("controller", "belongs to the agentic route; this measures the standard one")
        if any(not 1 <= steps <= 20 for steps in self.budgets):
            raise InvalidInput("budgets", "holds a number of steps outside 1 to 20")
        return self


async def evaluate_answers(
    application: Application,
    directory: Path,
    plan: Plan,
    *,
    folder: Path | None = None,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None,
) -> tuple[dict[str, Any], list[Record]]:
    """Measure answers on the sets below `directory`; returns the figures and the records they come from.

    With `folder` every record is kept there at once, and what is there already is not asked again. `progress` takes
    what is being done, how much of it is done, and of how much. Raises NotFound, InvalidInput, FailedPrecondition (the
    folder holds another measurement), DatabaseUnavailable, EmbedderUnavailable.
    """
    plan = plan.checked()
    folders = await asyncio.to_thread(find_sets, directory, plan.names)
    asker = Asker(application, top_k=plan.top_k)
    report: dict[str, Any] = {"measured": _described(application, plan), "sets": {}}
    with Ledger(folder, report["measured"]) as ledger:
        for path in folders:
            answers = await asyncio.to_thread(
                read_answers,
                path,
                limit=plan.limit,
                documents=plan.documents,
                seed=plan.seed,
                gold=plan.controller == GOLD,
            )
            await _ask_set(asker, application, answers, plan, ledger, progress)
            records = [record for record in ledger.records.values() if record.set == answers.qa.name]
            report["sets"][answers.qa.name] = {
                **figures_of(records, plan.budgets),
                "documents": len(answers.qa.documents),
            }
    records = list(ledger.records.values())
    if len(folders) > 1:
        report["pooled"] = figures_of(records, plan.budgets)
    return report, records


async def _ask_set(
    asker: Asker,
    application: Application,
    answers: AnswerSet,
    plan: Plan,
    ledger: Ledger,
    progress: Callable[[str, int, int], None],
) -> None:
    qa = answers.qa
    arms = _arms(plan)
    rest = [
        (question, arm)
        for question in answers.questions
        for arm in (arms if question.answerable else arms[:1])
        if (qa.name, question.id, arm.name, question.answerable) not in ledger.records
    ]
    total = sum(len(arms) if question.answerable else 1 for question in answers.questions)
    what = f"{qa.name}: answers"
    progress(what, total - len(rest), total)
    if not rest:
        return
    place, reduced = await _places(application, answers, [question for question, _ in rest], progress)
    gate = asyncio.Semaphore(plan.at_once)
    done = total - len(rest)

    async def one(question: AskedQuestion, arm: Arm) -> None:
        nonlocal done
        async with gate:
            ledger.add(await asker.ask(question, reduced if question.held_out else place, arm))
        done += 1
        progress(what, done, total)

    await all_of([one(question, arm) for question, arm in rest])


async def _places(
    application: Application,
    answers: AnswerSet,
    asked: Sequence[AskedQuestion],
    progress: Callable[[str, int, int], None],
) -> tuple[Place, Place]:
    """Bring in the corpus and, if a question needs it, the reduced one; where it is not needed both are the same."""
    places = []
    corpora = [answers.qa, answers.reduced] if any(question.held_out for question in asked) else [answers.qa]
    for qa in corpora:
        what, total = f"{qa.name}: documents{' (reduced)' if qa is not answers.qa else ''}", len(qa.documents)

        def report(done: int, what: str = what, total: int = total) -> None:
            progress(what, done, total)

        collection = await ingest_set(application.pool, application.embedder, qa, report=report)
        places.append(Place(answers.qa.name, Scope(TENANT, collection), qa.by_title))
    return places[0], places[-1]


def _arms(plan: Plan) -> list[Arm]:
    """What is asked of an answerable question; the first alone of an unanswerable one."""
    arms = [Arm(ASKED, plan.route, plan.controller)]
    if plan.route is not Route.STANDARD:
        arms.append(Arm(SINGLE_SHOT, Route.STANDARD))
    arms += [Arm(budget_arm(steps), Route.AGENTIC, plan.controller, steps) for steps in plan.budgets]
    return arms


def _described(application: Application, plan: Plan) -> dict[str, Any]:
    """What makes two measurements the same: records of one must not be mixed with those of another."""
    settings, models = application.settings, application.models.current()
    return {
        "sets": list(plan.names),
        "route": "auto" if plan.route is None else plan.route.value,
        "controller": plan.controller or (settings.agentic.controller if application.llm is not None else "offline"),
        "limit": plan.limit,
        "documents": plan.documents,
        "seed": plan.seed,
        "top_k": plan.top_k,
        "budgets": list(plan.budgets),
        "at_once": plan.at_once,
        "llm": settings.llm.model if application.llm is not None else None,
        "embedder": application.embedder.id,
        "routing_model": None if models is None else models.version,
    }
