"""Plan first: one call splits the question into sub-questions with dependencies; independent ones are searched at once.

After each wave of searches one call answers its sub-questions from what was found; answers are filled into those that
depend on them. A sub-question without an answer makes the controller plan again for what is missing; what stays without
one is named as a gap in the answer. Source: PlanRAG (Lee et al., NAACL 2024), in a parallel form.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

from agentic.actions import MAX_QUERY_LENGTH, Branch, Finish, Malformed, Plan, Proposal, Search, SearchEach
from agentic.calls import ask_structured
from agentic.controllers.protocol import Pattern
from agentic.guards.plan_limit import MAX_PLANS
from agentic.judge import Judged, judge_coverage
from agentic.prompting import DATA_RULE, fact_text, note_sections, past_queries, question_sections, source_sections
from agentic.replies import Line, Lines, Refs, closed, first_items
from agentic.state import BranchResult, Fact, Judgement
from agentic.structured import UnreadableOutput
from standard.domain.text import UntrustedText
from standard.llm.protocol import Purpose
from standard.sandbox.prompt import PromptText, instruction, join
from standard.sandbox.render import render_notes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentic.actions import Action
    from agentic.state import Held, RunState
    from standard.llm.protocol import Llm
    from standard.sandbox.render import Marker

MAX_BRANCHES = 6
_MAX_FILLED = 120
"""Code points of an answer that is filled into a dependent sub-question."""
_PLAN_TOKENS = 500
_ANSWER_TOKENS = 700


class BranchReply(BaseModel):
    """A sub-question as the model writes it."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)
    id: Line
    question: Line
    depends_on: Lines = []


class PlanReply(BaseModel):
    """The plan as the model writes it."""

    model_config = ConfigDict(extra="ignore")
    sub_questions: Annotated[list[BranchReply], BeforeValidator(first_items(MAX_BRANCHES))]


class AnswerReply(BaseModel):
    """The answer to one sub-question."""

    model_config = ConfigDict(extra="ignore")
    id: Line
    answer: Line = ""
    sources: Refs = []
    found: bool


class WaveReply(BaseModel):
    """The answers to the sub-questions of a wave."""

    model_config = ConfigDict(extra="ignore")
    answers: Annotated[list[AnswerReply], BeforeValidator(first_items(MAX_BRANCHES))]
    relevant: Refs = []


_TEXT: Mapping[str, object] = {"type": "string"}
_TEXTS: Mapping[str, object] = {"type": "array", "items": _TEXT}
PLAN_SCHEMA = closed(
    {"sub_questions": {"type": "array", "items": closed({"id": _TEXT, "question": _TEXT, "depends_on": _TEXTS})}}
)
WAVE_SCHEMA = closed(
    {
        "answers": {
            "type": "array",
            "items": closed({"id": _TEXT, "answer": _TEXT, "sources": _TEXTS, "found": {"type": "boolean"}}),
        },
        "relevant": _TEXTS,
    }
)

_PLAN = join(
    "\n\n",
    [
        instruction("You plan how to look a question up in a collection of documents. You do not answer it."),
        DATA_RULE,
        instruction("""\
Reply with one JSON object of this shape:
{"sub_questions": [{"id": "q1", "question": "captain of …", "depends_on": []},
{"id": "q2", "question": "birthplace of {q1}", "depends_on": ["q1"]}]}
It holds 1 to 6 sub-questions:
- "id": q1, q2 …
- "question": one lookup, short and complete by itself, in words that a document would use. Where it needs the answer of
  an earlier one, write that one's id in braces: "birthplace of {q1}".
- "depends_on": the ids in braces.
Ask for each thing that the question compares or joins in a sub-question of its own. As few as it takes: a question that
one lookup answers is one sub-question. Leave out steps that only compare, count or conclude."""),
    ],
)

_ANSWER = join(
    "\n\n",
    [
        instruction("You answer sub-questions from sources that were found for them."),
        DATA_RULE,
        instruction("""\
Reply with one JSON object of this shape:
{"answers": [{"id": "b1", "found": true, "answer": "…", "sources": ["S1"]}], "relevant": ["S1", "S4"]}
- "answers": one for each sub-question (its tag, b1, b2 …, is its "id"). "found" tells whether the sources state the
  answer; "answer" is that in a few words (a name, a date, a number with its unit; all of them where there are several;
  empty if not found), "sources" the tags of those that state it. Check that a source means the same person, place or
  thing. Nothing from your own memory.
- "relevant": the tags of those sources shown below that help to answer the question or what is still to be asked."""),
    ],
)


class PlanController:
    """Plans, searches what is ready, plans again for what failed, finishes."""

    def __init__(self, llm: Llm) -> None:
        self._llm = llm

    async def propose(self, state: RunState) -> Proposal:
        """The next wave of the plan, or a plan. Raises LlmUnavailable."""
        if not state.plans_made:
            return await self._plan(state)
        ready = ready_searches(state)
        if ready and not state.refused_in_row:
            action: Action = SearchEach(ready, reason="sub-questions that are ready")
            return Proposal(action)
        failed = failed_branches(state)
        if failed and state.plans_made < MAX_PLANS and state.steps_left and not state.refused_in_row:
            return await self._plan(state)
        belief = "partial" if failed or not state.branch_results else "sufficient"
        reason = f"{len(failed)} sub-questions have no answer" if failed else "every sub-question has an answer"
        return Proposal(Finish("sufficient" if belief == "sufficient" else "partial", reason=reason))

    async def _plan(self, state: RunState) -> Proposal:
        def prompt(marker: Marker) -> PromptText:
            return plan_prompt(state, marker)

        try:
            read = await ask_structured(
                self._llm, state, Purpose.PLAN, _PLAN, prompt, PlanReply, PLAN_SCHEMA, max_tokens=_PLAN_TOKENS
            )
        except UnreadableOutput as error:
            return Proposal(Malformed(error.problem), usage=error.usage)
        branches = branches_of(read.reply.sub_questions, first=_next_number(state))
        return Proposal(Plan(branches, reason="plan" if not state.plans_made else "plan again"), usage=read.usage)


class PlanJudge:
    """Answers the sub-questions of the last wave; the score is the share of sub-questions with an answer."""

    def __init__(self, llm: Llm) -> None:
        self._llm = llm

    async def judge(self, state: RunState) -> Judged:
        """Judge the last wave. Raises LlmUnavailable, UnreadableOutput."""
        open_branches = unanswered(state)
        if not open_branches:
            return Judged(judge_coverage(state))

        def prompt(marker: Marker) -> PromptText:
            return wave_prompt(state, open_branches, marker)

        read = await ask_structured(
            self._llm, state, Purpose.JUDGE, _ANSWER, prompt, WaveReply, WAVE_SCHEMA, max_tokens=_ANSWER_TOKENS
        )
        results = results_of(read.reply, open_branches, state)
        together = replace(state, branch_results=state.branch_results + results)
        shown = {held.ref for held in _to_show(state)}
        # What was of use to an earlier sub-question stays so, whether or not it is to this one.
        relevant = shown & set(read.reply.relevant) | {held.ref for held in state.evidence.held if held.relevant}
        relevant |= {ref for result in results for ref in result.refs}
        return Judged(judgement_of(together), frozenset(relevant), read.usage, results)


def plan_pattern(llm: Llm) -> Pattern:
    """The plan-first pattern."""
    return Pattern("plan", PlanController(llm), PlanJudge(llm), judges_with_llm=True)


def plan_prompt(state: RunState, marker: Marker) -> PromptText:
    """The user message of a plan: the question, and on a second plan what is known and what failed."""
    parts = [question_sections(state, marker)]
    if state.plans_made:
        known = [fact_text(fact) for fact in branch_facts(state)]
        parts += note_sections("Known already:", "K", known, marker)
        failed = [as_asked(branch, state) for branch in failed_branches(state)]
        parts += note_sections("Searched for without an answer; find another way to it:", "F", failed, marker)
        parts += note_sections("Queries so far:", "A", past_queries(state), marker)
        parts.append(instruction("Plan only for what is still missing."))
    return join("\n\n", parts)


def wave_prompt(state: RunState, branches: Sequence[Branch], marker: Marker) -> PromptText:
    """The user message that asks for the answers of a wave."""
    parts = [question_sections(state, marker)]
    known = [fact_text(fact) for fact in branch_facts(state)]
    parts += note_sections("Known from earlier sub-questions:", "K", known, marker)
    asked = {branch.id: UntrustedText(as_asked(branch, state)) for branch in branches}
    parts += [instruction("The sub-questions:"), render_notes(asked, marker)]
    held = _to_show(state)
    if held:
        parts += [instruction("The sources:"), source_sections(held, marker)]
    else:
        parts.append(instruction("No new sources were found."))
    return join("\n\n", parts)


def branches_of(replies: Sequence[BranchReply], first: int) -> tuple[Branch, ...]:
    """The plan under ids of ours, b<first> and on; dependencies that are not among the earlier ones are left out."""
    ids: dict[str, str] = {}
    branches: list[Branch] = []
    for number, reply in enumerate(replies, first):
        question = reply.question.strip()
        for name, own in ids.items():
            question = re.sub(rf"\{{\s*{re.escape(name)}\s*\}}", f"{{{own}}}", question)
        needed = {ids[name] for name in reply.depends_on if name in ids}
        needed |= set(_PLACE.findall(question)) & set(ids.values())
        own_id = f"b{number}"
        ids[reply.id.strip()] = own_id
        branches.append(Branch(own_id, question[:MAX_QUERY_LENGTH], tuple(sorted(needed))))
    return tuple(branches)


_PLACE = re.compile(r"\{(b\d+)\}")


def _next_number(state: RunState) -> int:
    """The number of the next sub-question: no id of an earlier plan comes again."""
    used = [result.branch for result in state.branch_results] + [branch.id for branch in state.plan]
    used += [query.branch for query in state.queries if query.branch]
    return 1 + max((int(name[1:]) for name in used), default=0)


def ready_searches(state: RunState) -> tuple[Search, ...]:
    """Searches for the sub-questions that were not searched for and whose dependencies have answers."""
    searched = {query.branch for query in state.queries}
    searches = []
    for branch in state.plan:
        if branch.id in searched or _result(state, branch.id) is not None:
            continue
        query = filled(branch, state)
        if query is not None and query not in state.dropped_queries:
            searches.append(Search(query, branch=branch.id))
    return tuple(searches)


def filled(branch: Branch, state: RunState) -> str | None:
    """The sub-question with the answers it depends on in their places; None while one of them has no answer."""
    answers: dict[str, str] = {}
    for parent in branch.depends_on:
        result = _result(state, parent)
        if result is None or result.failed:
            return None
        answers[parent] = " ".join(result.answer.split())[:_MAX_FILLED]
    question = _PLACE.sub(lambda match: answers.get(match.group(1), ""), branch.question)
    unplaced = [answer for parent, answer in answers.items() if f"{{{parent}}}" not in branch.question]
    return " ".join([question, *unplaced])[:MAX_QUERY_LENGTH].strip()


def as_asked(branch: Branch, state: RunState) -> str:
    """The sub-question as people may read it: what it still depends on is left open."""
    return filled(branch, state) or " ".join(_PLACE.sub("…", branch.question).split())


def unanswered(state: RunState) -> tuple[Branch, ...]:
    """Sub-questions that were searched for, or whose query an earlier one had asked, and that have no result yet."""
    searched = {query.branch for query in state.queries}
    return tuple(
        branch
        for branch in state.plan
        if _result(state, branch.id) is None
        and (branch.id in searched or filled(branch, state) in state.dropped_queries)
    )


def failed_branches(state: RunState) -> tuple[Branch, ...]:
    """Sub-questions of the plan without an answer: not found, or dependent on one that was not."""
    failed: list[Branch] = []
    for branch in state.plan:
        result = _result(state, branch.id)
        lost = {item.id for item in failed}
        if (result is not None and result.failed) or (result is None and lost & set(branch.depends_on)):
            failed.append(branch)
    return tuple(failed)


def results_of(reply: WaveReply, branches: Sequence[Branch], state: RunState) -> tuple[BranchResult, ...]:
    """One result for each sub-question of the wave; one that is left out, or answered without a source, failed."""
    said = {answer.id.strip(): answer for answer in reply.answers}
    if not said.keys() & {branch.id for branch in branches} and len(reply.answers) == len(branches):
        # Ids go on counting after a second plan; a model that begins with b1 again still answers in order.
        said = {branch.id: answer for branch, answer in zip(branches, reply.answers, strict=True)}
    results = []
    for branch in branches:
        answer = said.get(branch.id)
        question = as_asked(branch, state)
        refs = () if answer is None else tuple(ref for ref in answer.sources if state.evidence.by_ref(ref))
        if answer is None or not answer.found or not answer.answer.strip() or not refs:
            results.append(BranchResult(branch.id, question, failed=True))
        else:
            results.append(BranchResult(branch.id, question, answer.answer.strip(), refs))
    return tuple(results)


def branch_facts(state: RunState) -> tuple[Fact, ...]:
    """What the answered sub-questions say."""
    return tuple(
        Fact(f"{result.question} -> {result.answer}", result.refs)
        for result in state.branch_results
        if not result.failed
    )


def judgement_of(state: RunState) -> Judgement:
    """How much of the plan has answers."""
    failed = failed_branches(state)
    answered = [branch for branch in state.plan if (result := _result(state, branch.id)) and not result.failed]
    return Judgement(
        step=state.steps,
        score=len(answered) / len(state.plan) if state.plan else 0.0,
        sufficient=len(answered) == len(state.plan),
        known=branch_facts(state),
        missing=tuple(as_asked(branch, state) for branch in failed),
        by="llm",
    )


def _result(state: RunState, branch: str) -> BranchResult | None:
    return next((result for result in state.branch_results if result.branch == branch), None)


def _to_show(state: RunState) -> tuple[Held, ...]:
    """What is new, and what was of use before: one source often answers a later sub-question as well."""
    return state.evidence.in_context
