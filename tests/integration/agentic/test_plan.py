"""Plan first, against a model over real HTTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from agentic.controllers.offline import offline_pattern
from agentic.controllers.plan import plan_pattern
from agentic.run import AgenticParts, make_parts
from agentic.settings import AgenticSettings
from standard.domain.answer import Outcome, StopReason
from standard.domain.event import Degraded, EventBody, GuardTripped, PlanMade, QueryIssued, SufficiencyJudged
from standard.domain.outcome import RouteResult
from standard.domain.question import Budget
from standard.llm.client import OpenAiLlm
from tests.support.memory_retriever import MemoryLibrary, embed
from tests.support.model_server import ModelServer, Recorded, Reply, json_reply
from tests.unit.agentic.scripted import PlainWriter, run

QUESTION = "Was the captain of Razorbill born before Port Ness got its second pier?"


def plan(*branches: tuple[str, str, Sequence[str]]) -> Reply:
    return json_reply(
        {"sub_questions": [{"id": name, "question": text, "depends_on": list(needs)} for name, text, needs in branches]}
    )


CHAIN = plan(
    ("q1", "captain of Razorbill", ()), ("q2", "piers of Port Ness", ()), ("q3", "birth year of {q1}", ("q1",))
)


class Planner:
    """Plans once (or as told), answers sub-questions from what it is shown; `unknown` ones it does not find."""

    def __init__(self, *plans: Reply, unknown: Sequence[str] = ()) -> None:
        self.plans = list(plans)
        self.unknown = unknown
        self.waves: list[list[str]] = []

    def __call__(self, request: Recorded) -> Reply:
        shown = request.text("user")
        if "You plan how" in request.text("system"):
            return self.plans.pop(0)
        asked = re.findall(r'<note id="(b\d+)"[^>]*>\n(.*?)\n</note', shown)
        self.waves.append([text for _, text in asked])
        answers = []
        for name, text in asked:
            lost = any(word in text for word in self.unknown)
            answer = "Anna Berg" if "captain" in text else "two" if "piers" in text else "1970"
            answers.append({"id": name, "answer": "" if lost else answer, "found": not lost, "sources": ["S1"]})
        return json_reply({"answers": answers, "relevant": ["S1", "S2", "S3"]})


def parts(llm: OpenAiLlm, library: MemoryLibrary, writer: PlainWriter | None = None) -> AgenticParts:
    return make_parts(
        library, embed, writer or PlainWriter(), offline_pattern(), patterns={"plan": plan_pattern(llm)},
        settings=AgenticSettings(controller="plan"),
    )  # fmt: skip


async def ask(
    llm: OpenAiLlm, library: MemoryLibrary, *, writer: PlainWriter | None = None, steps: int | None = None
) -> tuple[RouteResult, list[EventBody]]:
    return await run(QUESTION, parts(llm, library, writer), library, top_k=1, budget=Budget(max_steps=steps))


def queries(events: Sequence[EventBody]) -> list[str]:
    return [event.query for event in events if isinstance(event, QueryIssued)]


async def test_independent_branches_run_at_once_and_dependent_ones_get_answers(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    model = Planner(CHAIN)
    server.script = model
    writer = PlainWriter()
    library.delay = 0.02
    result, events = await ask(llm, library, writer=writer)
    assert queries(events)[1:] == ["captain of Razorbill", "piers of Port Ness", "birth year of Anna Berg"]
    assert model.waves == [["captain of Razorbill", "piers of Port Ness"], ["birth year of Anna Berg"]]
    assert library.most_at_once == 2
    assert (result.outcome, result.stop_reason, result.steps) == (Outcome.ANSWERED, StopReason.SUFFICIENT, 4)
    assert [event.score for event in events if isinstance(event, SufficiencyJudged)][1:] == [2 / 3, 1.0]
    assert "captain of Razorbill -> Anna Berg" in {fact.text for fact in writer.requests[0].facts}
    (made,) = [event for event in events if isinstance(event, PlanMade)]
    assert [(sub.id, sub.depends_on) for sub in made.sub_questions] == [("b1", ()), ("b2", ()), ("b3", ("b1",))]


async def test_three_slow_branches_take_as_long_as_one(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    names = ("piers of Port Ness", "lost property days", "dogs on deck")
    server.script = Planner(plan(*((f"q{at}", name, ()) for at, name in enumerate(names))))
    first = await library.first(QUESTION, 1)
    del first
    library.delay = 0.5
    started = asyncio.get_running_loop().time()
    _, events = await ask(llm, library)
    assert len(queries(events)) == 4
    assert library.most_at_once == 3
    assert asyncio.get_running_loop().time() - started < 2 * 0.5 + 0.45  # the first retrieval and one wave


async def test_a_failed_branch_is_planned_for_again(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    again = plan(("q1", "slipway of Port Ness", ()))
    model = Planner(plan(("q1", "captain of Razorbill", ()), ("q2", "second mooring", ())), again, unknown=["mooring"])
    server.script = model
    result, events = await ask(llm, library)
    assert len([event for event in events if isinstance(event, PlanMade)]) == 2
    told = [request.text("user") for request in server.requests if "You plan how" in request.text("system")][1]
    assert "second mooring" in told
    assert "captain of Razorbill -> Anna Berg" in told
    assert result.outcome is Outcome.ANSWERED


async def test_what_stays_unanswered_is_named(server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary) -> None:
    server.script = Planner(
        plan(("q1", "captain of Razorbill", ()), ("q2", "her dog", ()), ("q3", "age of {q2}", ("q2",))),
        plan(("q1", "the name of the dog", ())),
        plan(("q1", "any dog aboard", ())),
        unknown=["dog"],
    )
    writer = PlainWriter()
    result, events = await ask(llm, library, writer=writer)
    assert result.outcome is Outcome.ANSWERED_WITH_CAVEAT
    assert "not found: any dog aboard" in result.notices
    assert "any dog aboard" in writer.requests[0].gaps
    assert "age of" not in " ".join(queries(events))  # never searched: what it needs was not found
    assert len([event for event in events if isinstance(event, PlanMade)]) == 3


async def test_a_plan_beyond_the_budget_is_cut_and_the_rest_is_named(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    server.script = Planner(CHAIN)
    result, events = await ask(llm, library, steps=2)
    assert (result.steps, result.stop_reason) == (2, StopReason.STEP_BUDGET)
    assert any(event.guard == "steps" for event in events if isinstance(event, GuardTripped))
    assert result.outcome is Outcome.ANSWERED_WITH_CAVEAT
    assert any("not found" in notice for notice in result.notices)


async def test_a_branch_that_asks_for_the_question_itself_is_answered_from_what_is_held(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    model = Planner(plan(("q1", QUESTION.upper(), ()), ("q2", "piers of Port Ness", ())))
    server.script = model
    result, events = await ask(llm, library)
    assert queries(events) == [QUESTION, "piers of Port Ness"]
    assert len(model.waves[0]) == 2
    assert result.stop_reason is StopReason.SUFFICIENT


async def test_a_plan_that_cannot_be_read_leaves_the_rules_in_charge(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    server.script = lambda _: Reply("Let us think step by step.")
    result, events = await ask(llm, library)
    assert [event.guard for event in events if isinstance(event, GuardTripped)][:1] == ["malformed_output"]
    assert [event.dependency for event in events if isinstance(event, Degraded)] == ["llm"]
    assert result.text


async def test_a_plan_without_branches_or_in_a_circle_is_made_sense_of(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    circle = plan(("q1", "captain of {q2}", ("q2",)), ("q2", "ship of {q1}", ("q1",)))
    server.script = Planner(circle, plan(), plan())
    result, _ = await ask(llm, library)
    assert result.text
    assert result.steps <= 8


async def test_a_source_of_use_to_one_sub_question_is_shown_to_the_next(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    server.script = Planner(CHAIN)
    await ask(llm, library)
    waves = [
        request.text("user") for request in server.requests if "You answer sub-questions" in request.text("system")
    ]
    assert len(waves) == 2
    assert "birth year of Anna Berg" in waves[1]
    assert "her captain is Anna Berg" in waves[1]  # found by the first wave


async def test_answers_under_other_ids_are_taken_in_order(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    planner = Planner(plan(("q1", "captain of Razorbill", ())), plan(("q1", "who commands Razorbill", ())))
    first = json_reply({"answers": [{"id": "b1", "answer": "", "found": False, "sources": []}], "relevant": []})
    renamed = json_reply(
        {"answers": [{"id": "q1", "answer": "Anna Berg", "found": True, "sources": ["S1"]}], "relevant": ["S1"]}
    )
    waves = [first, renamed]

    def model(request: Recorded) -> Reply:
        return waves.pop(0) if "You answer sub-questions" in request.text("system") else planner(request)

    server.script = model
    result, _ = await ask(llm, library)
    assert result.stop_reason is StopReason.SUFFICIENT


async def test_ids_of_an_earlier_plan_do_not_come_again(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    one = [
        plan(("q1", text, ())) for text in ("captain of Razorbill", "who commands Razorbill", "officers of Razorbill")
    ]
    planner = Planner(*one, unknown=("Razorbill",))
    ids: list[str] = []

    def model(request: Recorded) -> Reply:
        ids.extend(re.findall(r'<note id="(b\d+)"', request.text("user")))
        return planner(request)

    server.script = model
    await ask(llm, library)
    assert len(ids) == len(set(ids)) > 1


async def test_what_a_lost_sub_question_leaves_open_is_not_told_by_its_id(
    server: ModelServer, llm: OpenAiLlm, library: MemoryLibrary
) -> None:
    server.script = Planner(CHAIN, plan(("q1", "who commands Razorbill", ())), CHAIN, unknown=("captain", "commands"))
    await ask(llm, library)
    again = [request.text("user") for request in server.requests if "find another way" in request.text("user")]
    assert again
    assert "birth year of …" in again[0]
    assert not re.search(r"\{b\d+\}", again[0])
