"""Retrieve, then decide: after every retrieval one call judges the evidence and names the next move.

The judge sees what is new in full and what it noted before as facts with their sources, so that a step costs the tokens
of its own passages, not of all before it. A second call is made only where a guard refused what the first one wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentic.actions import MAX_QUERY_LENGTH, Ask, FindLinked, Finish, Malformed, Proposal, Read, Search
from agentic.calls import ask_structured
from agentic.controllers.protocol import Pattern
from agentic.judge import Judged
from agentic.prompting import (
    DATA_RULE,
    fact_text,
    note_sections,
    past_queries,
    question_sections,
    refused_proposals,
    source_sections,
)
from agentic.replies import Claims, Line, Lines, Refs, closed, known_fact
from agentic.state import Judgement, NextMove
from agentic.structured import UnreadableOutput
from standard.llm.protocol import Purpose
from standard.sandbox.prompt import PromptText, instruction, join

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentic.actions import Action
    from agentic.state import Held, RunState
    from standard.llm.protocol import Llm
    from standard.sandbox.render import Marker

_JUDGE_TOKENS = 700
_REWRITE_TOKENS = 250


class JudgeReply(BaseModel):
    """The judge's reply: the checklist, a score, and the next move."""

    model_config = ConfigDict(extra="ignore")
    known: Claims = []
    missing: Lines = []
    contradictions: Claims = []
    relevant: Refs = []
    score: float = Field(ge=0.0, le=1.0)
    next: Literal["answer", "search", "links", "read", "ask", "unanswerable"]
    query: Line = ""
    follow: Refs = []
    question: Line = ""
    options: Lines = []
    reason: Line = ""


class RewriteReply(BaseModel):
    """What to do after a refusal."""

    model_config = ConfigDict(extra="ignore")
    next: Literal["answer", "search", "links", "read", "ask", "unanswerable"]
    query: Line = ""
    follow: Refs = []
    question: Line = ""
    options: Lines = []
    reason: Line = ""


_TEXT: Mapping[str, object] = {"type": "string"}
_TEXTS: Mapping[str, object] = {"type": "array", "items": _TEXT}
_CLAIMS: Mapping[str, object] = {
    "type": "array",
    "items": closed({"text": _TEXT, "sources": _TEXTS}),
}
_MOVE: Mapping[str, object] = {
    "next": {"type": "string", "enum": ["answer", "search", "links", "read", "ask", "unanswerable"]},
    "query": _TEXT,
    "follow": _TEXTS,
    "question": _TEXT,
    "options": _TEXTS,
    "reason": _TEXT,
}
_CHECKLIST: Mapping[str, object] = {
    "known": _CLAIMS,
    "missing": _TEXTS,
    "contradictions": _CLAIMS,
    "relevant": _TEXTS,
    "score": {"type": "number"},
}


JUDGE_SCHEMA = closed({**_CHECKLIST, **_MOVE})
REWRITE_SCHEMA = closed(_MOVE)

_MOVES = instruction("""\
"next" is one of
- "answer": what is known answers the whole question; or a part of it, and no other search is promising.
- "search": something is missing. "query" is one short search for exactly that, in words that a document would use. Put
  the names you have learned into it (write "birthplace of Anna Berg", not "birthplace of the captain"). Ask for one
  thing at a time, and for nothing that an earlier query (A1, A2 …) asked already, however phrased.
- "read": a source breaks off just where the answer should stand: a table, a list or a sentence whose rest must be next
  to it. "follow" is the tag of that one source; its whole section is shown next.
- "links": what is missing is likely to stand in documents that some sources name; "follow" lists those sources.
- "ask": the question has several readings that the sources cannot decide between, and the answer would differ.
  "question" is one question to the user, "options" the readings. Do not ask what a search can find out.
- "unanswerable": different searches found nothing of what is asked, and no other search is promising; or the sources
  say themselves that it does not exist, is not known or is not decided.
Fields that your move does not need stay empty. "reason" is one sentence.""")

_JUDGE = join(
    "\n\n",
    [
        instruction(
            "You decide whether a collection of documents has yielded enough to answer a question. You do not "
            "answer it."
        ),
        DATA_RULE,
        instruction("""\
Reply with one JSON object of this shape:
{"known": [{"text": "…", "sources": ["S1", "S4"]}], "missing": ["…"],
"contradictions": [{"text": "…", "sources": ["S1", "S2"]}], "relevant": ["S1", "S4"], "score": 0.5,
"next": "search", "query": "…", "follow": [], "question": "", "options": [], "reason": "…"}
Work through it from top to bottom:
- "known": what the question needs and the sources state, all of it so far, in ten short sentences at most, each with
  the tags of the sources that state it. Repeat the earlier notes (K1, K2 …) that still hold, with the S tags behind
  them: what you leave out is forgotten. Nothing from your own memory.
- "missing": what the question needs and no source states. Several things asked, or a chain from one thing to the next:
  each link counts. What can be worked out from what is known (a difference, which of two is more, whether a limit is
  kept) is not missing. Before you rely on a name, check that the source means the same person, place or thing. Where
  the user has to say which of several things is meant, that is missing.
- "contradictions": where sources disagree on something the question needs, with their tags. A newer version that
  replaces an older one is no contradiction if the source says so.
- "relevant": the tags of those sources shown below that help to answer.
- "score": 0 to 1, the share of what the question needs that is known; 1 only if nothing is missing."""),
        _MOVES,
    ],
)

_REWRITE = join(
    "\n\n",
    [
        instruction(
            "You look for what is missing to answer a question from a collection of documents. Your last "
            'proposal was refused; the notes X1, X2 … say why. Propose something else, or end with "answer" or '
            '"unanswerable".'
        ),
        DATA_RULE,
        instruction("""\
Reply with one JSON object of this shape:
{"next": "search", "query": "…", "follow": [], "question": "", "options": [], "reason": "…"}"""),
        _MOVES,
    ],
)


class LlmJudge:
    """Judges with the model; its judgement carries the next move."""

    def __init__(self, llm: Llm) -> None:
        self._llm = llm

    async def judge(self, state: RunState) -> Judged:
        """Judge the newest evidence. Raises LlmUnavailable, UnreadableOutput."""

        def prompt(marker: Marker) -> PromptText:
            return judge_prompt(state, marker)

        read = await ask_structured(
            self._llm, state, Purpose.JUDGE, _JUDGE, prompt, JudgeReply, JUDGE_SCHEMA, max_tokens=_JUDGE_TOKENS
        )
        shown = {held.ref for held in sources_to_show(state)}
        earlier = {held.ref for held in state.evidence.held if held.relevant}
        relevant = (shown & set(read.reply.relevant)) | (earlier - shown)
        # A source that a known fact rests on is relevant, whether it was listed or not.
        relevant |= {ref for claim in read.reply.known for ref in claim.sources if state.evidence.by_ref(ref)}
        return Judged(judgement_of(read.reply, state), frozenset(relevant), read.usage)


class DecideController:
    """Turns the judge's next move into an action; asks again only after a refusal."""

    def __init__(self, llm: Llm) -> None:
        self._llm = llm

    async def propose(self, state: RunState) -> Proposal:
        """The judge's move, or another one after a refusal. Raises LlmUnavailable."""
        judgement = state.last_judgement
        if judgement is not None and judgement.step == state.steps and judgement.next and not state.refused_in_row:
            return Proposal(action_of(judgement.next, judgement))

        def prompt(marker: Marker) -> PromptText:
            return rewrite_prompt(state, marker)

        try:
            read = await ask_structured(
                self._llm, state, Purpose.CONTROL, _REWRITE, prompt, RewriteReply, REWRITE_SCHEMA,
                max_tokens=_REWRITE_TOKENS,
            )  # fmt: skip
        except UnreadableOutput as error:
            return Proposal(Malformed(error.problem), usage=error.usage)
        return Proposal(action_of(_move_of(read.reply, state), judgement), usage=read.usage)


def decide_pattern(llm: Llm) -> Pattern:
    """The retrieve-then-decide pattern."""
    return Pattern("decide", DecideController(llm), LlmJudge(llm), judges_with_llm=True)


def sources_to_show(state: RunState) -> tuple[Held, ...]:
    """The sources that the judge reads in full: those in the context that it has not judged yet."""
    return tuple(held for held in state.evidence.in_context if held.relevant is None)


def judge_prompt(state: RunState, marker: Marker) -> PromptText:
    """The user message of a judgement."""
    judgement = state.last_judgement
    parts = [question_sections(state, marker)]
    if judgement is not None:
        known = [fact_text(fact) for fact in judgement.known]
        parts += note_sections("Known before the newest sources:", "K", known, marker)
        parts += note_sections("Missing until then:", "M", judgement.missing, marker)
    if state.summary is not None and judgement is None:
        parts += note_sections("Known so far:", "K", [fact_text(fact) for fact in state.summary.facts], marker)
    parts += note_sections("Queries so far:", "A", past_queries(state), marker)
    sources = sources_to_show(state)
    if sources:
        parts += [instruction("The newest sources:"), source_sections(sources, marker)]
    else:
        parts.append(instruction("The last query brought no new sources."))
    return join("\n\n", parts)


def rewrite_prompt(state: RunState, marker: Marker) -> PromptText:
    """The user message after a refusal: no passages, only what is known of them."""
    judgement = state.last_judgement
    parts = [question_sections(state, marker)]
    if judgement is not None:
        known = [fact_text(fact) for fact in judgement.known]
        parts += note_sections("Known so far:", "K", known, marker)
        parts += note_sections("Still missing:", "M", judgement.missing, marker)
    parts += note_sections("Queries so far:", "A", past_queries(state), marker)
    parts += note_sections("Refused proposals:", "X", refused_proposals(state), marker)
    return join("\n\n", parts)


def judgement_of(reply: JudgeReply, state: RunState) -> Judgement:
    """The reply as a judgement; references to sources that the run does not hold are left out."""
    complete = reply.score >= state.settings.sufficient_score and not reply.missing
    return Judgement(
        step=state.steps,
        score=reply.score,
        sufficient=complete or (reply.next == "answer" and reply.score >= 0.5 and not reply.missing),
        known=tuple(known_fact(claim, state) for claim in reply.known),
        missing=tuple(reply.missing),
        contradictions=tuple(known_fact(claim, state) for claim in reply.contradictions),
        by="llm",
        next=_move_of(reply, state),
    )


def action_of(move: NextMove, judgement: Judgement | None) -> Action:
    """The action that a move asks for."""
    sufficient = judgement is not None and judgement.sufficient
    match move.move:
        case "search":
            return Search(move.query[:MAX_QUERY_LENGTH], reason=move.reason)
        case "link":
            return FindLinked(move.refs, reason=move.reason)
        case "read":
            return Read(move.refs[0], reason=move.reason) if move.refs else Malformed('"read" names no source')
        case "ask":
            return Ask(move.question, move.options, reason=move.reason)
        case "unanswerable":
            return Finish("unanswerable", reason=move.reason)
        case _:
            return Finish("sufficient" if sufficient else "partial", reason=move.reason)


def _move_of(reply: JudgeReply | RewriteReply, state: RunState) -> NextMove:
    refs = tuple(dict.fromkeys(ref for ref in reply.follow if state.evidence.by_ref(ref) is not None))[:3]
    kind: Literal["finish", "search", "link", "read", "ask", "unanswerable"]
    match reply.next:
        case "answer":
            kind = "finish"
        case "links":
            kind = "link"
        case _:
            kind = reply.next
    return NextMove(kind, reply.query.strip(), refs, reply.question.strip(), tuple(reply.options), reply.reason)
