"""The model searches by itself, with four tools over the collection: exact words, meaning, sections, links.

Found passages are snippets until they are read. Every turn is built from the run's state, not from a growing
transcript: a broken call leaves nothing behind, and compression shortens what the next turn costs. Source: A-RAG
(2026), with its gaps closed: bad arguments are refused, not guessed, and what compression dropped may be read again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from agentic.actions import MAX_QUERY_LENGTH, Ask, FindLinked, Finish, Malformed, Proposal, Read, Search
from agentic.calls import output_cap, timeout_of
from agentic.controllers.protocol import Pattern
from agentic.judge import EvidenceJudge
from agentic.prompting import (
    DATA_RULE,
    fact_text,
    note_sections,
    past_queries,
    question_sections,
    refused_proposals,
    source_sections,
    tag_of,
)
from agentic.replies import Line, closed, first_items
from agentic.state import Fact
from agentic.structured import describe_problems
from standard.citations.quote import QuotedPassage
from standard.domain.text import UntrustedText
from standard.llm.protocol import LlmRequest, Message, Purpose, Tool
from standard.sandbox.guarded_llm import guarded
from standard.sandbox.prompt import instruction, join
from standard.sandbox.render import render_notes, with_marker
from standard.screening import shown_text
from standard.unicode import encodable, in_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentic.actions import Action
    from agentic.state import Held, RunState
    from standard.llm.protocol import Completion, Llm, ToolCall
    from standard.sandbox.render import Marker

SNIPPET_LENGTH = 240
"""Code points of a passage that is shown before it is read."""
_OLDER_LENGTH = 100
"""What stays of a snippet once a newer search has found others."""
_TITLE_LENGTH = 120
_HEADING_LENGTH = 80
_NOTE_LENGTH = 800
_MOST_NAMED = 8
"""Sources that `finish` may name beside those that were read."""
_TURN_TOKENS = 400
_ARGUMENT_LENGTH = 4_000


def _source(value: object) -> object:
    """A source as models name it: "S3", "[S3]", 3."""
    if isinstance(value, str):
        digits = value.strip("[] sS")
        return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 6 else value
    return value


def _cut(value: object) -> object:
    return " ".join(value.split())[:_NOTE_LENGTH] if isinstance(value, str) else value


Source = Annotated[int, BeforeValidator(_source)]
Note = Annotated[str, BeforeValidator(_cut)]
_STRICT = ConfigDict(extra="forbid")


class KeywordArguments(BaseModel):
    """Arguments of keyword_search."""

    model_config = _STRICT
    keywords: str
    reason: Line = ""
    learned: Note = ""


class SemanticArguments(BaseModel):
    """Arguments of semantic_search."""

    model_config = _STRICT
    query: str
    reason: Line = ""
    learned: Note = ""


class ReadArguments(BaseModel):
    """Arguments of read_chunk."""

    model_config = _STRICT
    source: Source
    neighbours: bool = False
    reason: Line = ""
    learned: Note = ""


class LinkedArguments(BaseModel):
    """Arguments of find_linked."""

    model_config = _STRICT
    sources: Annotated[list[Source], BeforeValidator(first_items(3))]
    reason: Line = ""
    learned: Note = ""


class AskArguments(BaseModel):
    """Arguments of ask_user."""

    model_config = _STRICT
    question: Line
    options: Annotated[list[Line], BeforeValidator(first_items(6))] = []


class FinishArguments(BaseModel):
    """Arguments of finish."""

    model_config = _STRICT
    verdict: Literal["sufficient", "partial", "unanswerable"]
    sources: Annotated[list[Source], BeforeValidator(first_items(_MOST_NAMED))] = []
    reason: Line = ""


_TEXT: Mapping[str, object] = {"type": "string"}
_TEXTS: Mapping[str, object] = {"type": "array", "items": _TEXT}
_TAG: Mapping[str, object] = {"type": "string", "description": "its tag, such as S3"}
_TAGS: Mapping[str, object] = {"type": "array", "items": _TEXT}
_TURN: Mapping[str, object] = {"reason": _TEXT, "learned": _TEXT}

TOOLS: tuple[Tool, ...] = (
    Tool(
        "keyword_search",
        "Passages that hold words exactly: names, codes, numbers, terms. Phrases in quotation marks, or parts between "
        "commas.",
        closed({"keywords": _TEXT, **_TURN}),
    ),
    Tool(
        "semantic_search",
        "Passages whose sentences mean what the query says, whatever their words.",
        closed({"query": _TEXT, **_TURN}),
    ),
    Tool(
        "read_chunk",
        "The whole section that a source stands in; with neighbours also the sections around it.",
        closed({"source": _TAG, "neighbours": {"type": "boolean"}, **_TURN}),
    ),
    Tool(
        "find_linked",
        "Passages that share titles, names or codes with up to three sources.",
        closed({"sources": _TAGS, **_TURN}),
    ),
    Tool(
        "ask_user",
        "Ask the user, where the question has several readings that no search can decide between.",
        closed({"question": _TEXT, "options": _TEXTS}),
    ),
    Tool(
        "finish",
        "End the search: sufficient (the sources answer the question), partial (no search is left that could bring the "
        "rest), unanswerable (the collection does not hold it).",
        closed(
            {
                "verdict": {"type": "string", "enum": ["sufficient", "partial", "unanswerable"]},
                "sources": _TAGS,
                "reason": _TEXT,
            }
        ),
    ),
)

_SYSTEM = join(
    "\n\n",
    [
        instruction(
            "You gather from a collection of documents what a question needs. Another reader writes the answer, "
            "from the sources that you hand over. Call one tool a turn."
        ),
        DATA_RULE,
        instruction("""\
How to go about it:
- Exact names, codes and numbers: keyword_search. Descriptions: semantic_search. Where one finds nothing, try the other
  before you change the words.
- What is found is shown by its beginning or best sentence. Where what is shown says all that you need, do not read it:
  name it in "sources" of finish. Where "…" stands in the place of the answer, a row of a table or a condition, read it:
  what is not shown may not be there.
- A section that you read is shown once. Note in "learned" of your next call what it says on the question, with names,
  numbers and conditions: from then on you see the note alone, the writer the whole section. Else leave it empty.
- Follow a chain link by link, with the names that you have found. Before you go on from a name, check that the source
  means the same person, place or thing.
- Where documents name each other, find_linked is the shortest way.
- Do not ask again for what a query above asked, however phrased. A refused call says why; do something else.
- Finish as soon as what was read and what you name in "sources" answer the whole question.
- "reason" is one sentence: what you hope to learn; for finish, what was found and what was not."""),
    ],
)


class ToolsController:
    """Lets the model call one tool a turn."""

    def __init__(self, llm: Llm) -> None:
        self._llm = guarded(llm)

    async def propose(self, state: RunState) -> Proposal:
        """The tool call of the next turn as an action. Raises LlmUnavailable."""
        request = LlmRequest(
            purpose=Purpose.CONTROL,
            messages=with_marker(lambda marker: messages(state, marker)),
            max_tokens=output_cap(state, _TURN_TOKENS),
            timeout_seconds=timeout_of(state),
            tools=TOOLS,
            tool_choice="required",
        )
        completion = await self._llm.complete(request)
        action, learned = action_of(completion, state)
        if self._llm.leak_of(_SYSTEM, {"learned": learned, **asdict(action)}):
            self._llm.withheld(Purpose.CONTROL)
            action, learned = Malformed("the arguments repeated the instructions"), ""
        return Proposal(
            action,
            extra_calls=max(0, len(completion.tool_calls) - 1),
            usage=completion.usage,
            notes=notes_of(state, learned),
        )


def tools_pattern(llm: Llm) -> Pattern:
    """The pattern in which the model holds the tools."""
    return Pattern("tools", ToolsController(llm), EvidenceJudge(), snippets=True)


def messages(state: RunState, marker: Marker) -> tuple[Message, ...]:
    """A turn: the question, what was noted and read, what was found, what was tried and refused."""
    parts = [question_sections(state, marker)]
    if state.summary is not None:
        parts += note_sections("The record so far:", "K", [fact_text(fact) for fact in state.summary.facts], marker)
        parts += note_sections("Open:", "M", state.summary.open_questions, marker)
    notes = [fact_text(Fact(held.note, (held.ref,))) for held in state.evidence.in_context if held.note]
    parts += note_sections("Read before, as you noted it:", "N", notes, marker)
    read = state.evidence.in_turns
    if read:
        parts += [instruction("Sources that you have read:"), source_sections(read, marker)]
    found = found_lines(state)
    if found:
        parts.append(instruction("Sources found, a line each behind its tag, beginnings or best sentences only:"))
        parts.append(render_notes({"F": UntrustedText("\n".join(found))}, marker))
    parts += note_sections("Queries so far, the question itself first:", "A", past_queries(state), marker)
    parts += note_sections("Refused since then:", "X", refused_proposals(state), marker)
    return Message("system", _SYSTEM), Message("user", join("\n\n", parts))


def found_lines(state: RunState) -> list[str]:
    """A line for each source that was found and not read: tag, title, snippet. What a read section holds is left out.

    One section holds them all: a section of its own costs each two keys, which is more than most snippets.
    """
    read = [item.text.raw for item in state.evidence.in_context]
    lines = []
    newest = max((held.step for held in state.evidence.held), default=0)
    for held in state.evidence.held:
        known = held.full and not held.dropped
        if known or held.passage.verdict == "quarantine":
            continue
        if not held.dropped and any(held.passage.text.raw in text for text in read):
            continue
        told = " ".join(snippet(held, state).text.raw.split())
        if held.step < newest and len(told) > _OLDER_LENGTH:
            told = f"{told[:_OLDER_LENGTH].rstrip()} …"
        place = _place(held) if held.step == newest else _title(held)
        lines.append(f"{tag_of(held.ref)} ({place}): {told}")
    return lines


def _place(held: Held) -> str:
    """Title and last headings of a source, on one line: what a section is about often stands in its heading alone."""
    title = _title(held)
    headings = [" ".join(part.split()) for part in held.passage.section_heading.split(" > ")][-2:]
    below = " > ".join(part for part in headings if part and part != title)
    return f"{title} > {below[-_HEADING_LENGTH:]}" if below else title


def _title(held: Held) -> str:
    return " ".join(held.passage.title.raw[:_TITLE_LENGTH].split())


def snippet(held: Held, state: RunState) -> Held:
    """The source cut to the sentence that is nearest to the query which found it, and what follows it.

    A heading is often the nearest: alone it would not tell whether the source is worth a step.
    """
    text = shown_text(held.passage)
    query = next((item.query for item in state.queries if item.step == held.step), state.question.raw)
    _, (start, _) = QuotedPassage(held.passage).best_match(query)
    if not text[start : start + SNIPPET_LENGTH].strip():
        start = 0
    before = "… " if text[:start].strip() else ""
    after = " …" if text[start + SNIPPET_LENGTH :].strip() else ""
    return replace(held, section=UntrustedText(f"{before}{text[start : start + SNIPPET_LENGTH].strip()}{after}"))


def notes_of(state: RunState, learned: str) -> tuple[tuple[int, str], ...]:
    """What was learned as the note of the section that was read last; nothing where that is not shown any more."""
    ref = next((query.ref for query in reversed(state.queries) if query.ref), 0)
    shown = any(held.ref == ref and held.section is not None for held in state.evidence.in_turns)
    return ((ref, learned),) if learned and shown else ()


def action_of(completion: Completion, state: RunState) -> tuple[Action, str]:
    """The first call as an action, and what it says was learned. Nothing that a reply merely writes is executed."""
    if completion.tool_calls:
        return _call_action(completion.tool_calls[0])
    if completion.finish_reason == "length":
        return Malformed("the reply was cut off before it called a tool"), ""
    if completion.text.strip() and state.steps > 1:
        return Finish("sufficient", reason="the model answered instead of calling a tool"), ""
    return Malformed("no tool was called"), ""


def _call_action(call: ToolCall) -> tuple[Action, str]:
    if len(call.arguments) > _ARGUMENT_LENGTH:
        return Malformed("the arguments are too long"), ""
    try:
        arguments = in_texts(json.loads(call.arguments or "{}"), encodable)
    except (json.JSONDecodeError, RecursionError):
        return Malformed("the arguments are no JSON"), ""
    try:
        return _typed_action(call.name, arguments)
    except ValidationError as error:
        return Malformed(f"wrong arguments: {describe_problems(error)}"), ""


def _typed_action(name: str, arguments: object) -> tuple[Action, str]:
    match name:
        case "keyword_search":
            keyword = KeywordArguments.model_validate(arguments)
            return Search(_query(keyword.keywords), keyword.reason, mode="keyword"), keyword.learned
        case "semantic_search":
            semantic = SemanticArguments.model_validate(arguments)
            return Search(_query(semantic.query), semantic.reason, mode="semantic"), semantic.learned
        case "read_chunk":
            read = ReadArguments.model_validate(arguments)
            return Read(read.source, read.neighbours, read.reason), read.learned
        case "find_linked":
            linked = LinkedArguments.model_validate(arguments)
            return FindLinked(tuple(linked.sources), linked.reason), linked.learned
        case "ask_user":
            ask = AskArguments.model_validate(arguments)
            return Ask(ask.question, tuple(ask.options)), ""
        case "finish":
            finish = FinishArguments.model_validate(arguments)
            return Finish(finish.verdict, finish.reason, tuple(finish.sources)), ""
        case _:
            return Malformed("there is no such tool"), ""


def _query(text: str) -> str:
    return " ".join(text.split())[: MAX_QUERY_LENGTH + 1]
