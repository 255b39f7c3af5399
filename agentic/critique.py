"""Prevents: sentences of an answer that its sources do not bear out.

A draft is written without being shown. One call asks of it the four questions of Self-RAG (Asai et al., ICLR 2024), of
an ordinary model: which of the sources its writer read are relevant, which of its sentences they bear out, whether what
is left is of use, and whether another retrieval is needed for that. If so, one more search is made, and the answer is
written anew without the sources that were beside the point; what no source bears out is dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

from agentic.actions import MAX_QUERY_LENGTH
from agentic.calls import ask_structured
from agentic.prompting import DATA_RULE, note_sections, past_queries, question_sections, source_sections
from agentic.replies import Line, Refs, closed, first_items
from agentic.writer import excerpt, fit
from standard.domain.answer import Outcome, Usage
from standard.domain.event import CitationMade, TokenEmitted
from standard.llm.protocol import Purpose
from standard.pipeline import IN_PART
from standard.prompts import NO_ANSWER_FOUND
from standard.sandbox.prompt import PromptText, instruction, join
from standard.sentences import sentence_spans

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentic.answer import AnswerRequest
    from agentic.state import Held, RunState
    from standard.domain.answer import Citation
    from standard.domain.event import Emit, EventBody
    from standard.domain.outcome import RouteResult
    from standard.llm.protocol import Llm
    from standard.sandbox.render import Marker

MAX_SENTENCES = 40
DROPPED = "Sentences that no source bears out were left out."
UNCHECKED = "Not every sentence of the answer was checked against its sources."
_TOKENS = 1000
_STOP = re.compile(r"([.!?]+[\"'”’»)\]]*)\s+(?=\S)")
_NUMBER = re.compile(r"\[?[Dd]?0*([1-9]\d{0,3})\]?")


def _number(value: object) -> object:
    """A sentence's number as models write it: "D3", "[D3]", "d3", "3", 3; anything else stays and is refused."""
    found = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
    return int(found[1]) if found else value


class SentenceReply(BaseModel):
    """The verdict on one sentence."""

    model_config = ConfigDict(extra="ignore")
    id: Annotated[int, BeforeValidator(_number)]
    supported: bool


class CritiqueReply(BaseModel):
    """The verdict on a draft. `relevant` is None where the model said nothing about the sources."""

    model_config = ConfigDict(extra="ignore")
    relevant: Refs | None = None
    sentences: Annotated[list[SentenceReply], BeforeValidator(first_items(2 * MAX_SENTENCES))]
    useful: bool
    missing: Line = ""


_TEXT: Mapping[str, object] = {"type": "string"}
CRITIQUE_SCHEMA = closed(
    {
        "relevant": {"type": "array", "items": _TEXT},
        "sentences": {"type": "array", "items": closed({"id": _TEXT, "supported": {"type": "boolean"}})},
        "useful": {"type": "boolean"},
        "missing": _TEXT,
    }
)

_SYSTEM = join(
    "\n\n",
    [
        instruction(
            "You check the draft of an answer against the sources it was written from, before anybody sees it."
        ),
        DATA_RULE,
        instruction("""\
Reply with one JSON object of this shape:
{"relevant": ["S1", "S4"], "sentences": [{"id": "D1", "supported": true}, {"id": "D2", "supported": false}],
"useful": true, "missing": ""}
Work through it from top to bottom:
- "relevant": the tags of the sources that help to answer the question, about the very person, place, thing or time that
  it asks about. Empty where none does.
- "sentences": every sentence of the draft (D1, D2 …), in order. "supported" is true where all that it says stands in
  the sources or follows from them (a sum, a difference, which of two is more), about the same person, place or thing;
  one name, number or claim that does not makes it false. What you know yourself does not count. Read a short or broken
  sentence ("321.") as an answer to the question. One that states no fact (a heading, the beginning of a list, that
  something was not found) is true.
- "useful": true only where the supported sentences, without the others, answer all that the question asks.
- "missing": is another search needed? Where "useful" is false, one short search for exactly what the sources lack, in
  words that a document would use, and for nothing that an earlier query (A1, A2 …) asked already. Empty where the
  answer is useful, where the sources hold what the draft lacks, or where they say that it is not known."""),
    ],
)


@dataclass(frozen=True, slots=True)
class Review:
    """A draft's verdict.

    `unsupported` are spans of the sentences that no source bears out; `complete` says that each sentence was judged.
    `relevant` and `beside` are numbers of the sources that were shown, those to the point and the rest; both are empty
    where the model did not say. `off_topic`: it said that none is to the point. `query` is what to search for, or "".
    """

    unsupported: tuple[tuple[int, int], ...]
    complete: bool
    useful: bool
    query: str
    relevant: frozenset[int]
    beside: frozenset[int]
    off_topic: bool
    usage: Usage


class Critic:
    """Reviews drafts with the model."""

    def __init__(self, llm: Llm) -> None:
        self._llm = llm

    async def review(self, state: RunState, request: AnswerRequest, draft: RouteResult) -> Review:
        """Check a draft that was generated for `request`. Raises LlmUnavailable, UnreadableOutput.

        What is kept back for the answer may be used: it is written already.
        """
        every = claim_spans(draft)
        spans = every[:MAX_SENTENCES]
        sources = shown_sources(self._llm, state, request, draft)
        free = replace(state, limits=replace(state.limits, reserve_seconds=0.0, reserve_tokens=0, reserve_cost_usd=0.0))

        def prompt(marker: Marker) -> PromptText:
            sentences = [draft.text[slice(*span)] for span in spans]
            return join(
                "\n\n",
                [
                    question_sections(state, marker),
                    *note_sections("Queries so far:", "A", past_queries(state), marker),
                    instruction("The sources:"),
                    source_sections(sources, marker),
                    *note_sections("The draft, sentence by sentence:", "D", sentences, marker),
                ],
            )

        read = await ask_structured(
            self._llm, free, Purpose.CRITIQUE, _SYSTEM, prompt, CritiqueReply, CRITIQUE_SCHEMA, max_tokens=_TOKENS
        )
        reply = read.reply
        supported: dict[int, bool] = {}
        for item in reply.sentences:  # what is said both ways is not borne out
            supported[item.id] = item.supported and supported.get(item.id, True)
        shown = frozenset(held.ref for held in sources)
        relevant = shown & frozenset(reply.relevant or ())
        off_topic = reply.relevant == []
        return Review(
            unsupported=tuple(span for at, span in enumerate(spans, 1) if not supported.get(at, True)),
            complete=all(at in supported for at in range(1, len(every) + 1)),
            useful=reply.useful,
            query="" if reply.useful else reply.missing.strip()[:MAX_QUERY_LENGTH],
            relevant=relevant,
            beside=shown - relevant if relevant or off_topic else frozenset(),
            off_topic=off_topic,
            usage=read.usage,
        )


def claim_spans(draft: RouteResult) -> list[tuple[int, int]]:
    """The sentences of a draft, and what ends in a citation and a full stop though no sentence seems to end there.

    "38 [S1]. She is the relief ship." is one sentence without its tag, since "38." might number a list; where the
    second statement is wrong, the answer would go with it.
    """
    ends = sorted({citation.answer_end for citation in draft.citations})
    spans: list[tuple[int, int]] = []
    for start, end in sentence_spans(draft.text):
        at = start
        for cited in ends:
            stop = _STOP.match(draft.text, cited, end) if at < cited < end else None
            if stop is not None:
                spans.append((at, stop.end(1)))
                at = stop.end()
        spans.append((at, end))
    return spans


def shown_sources(llm: Llm, state: RunState, request: AnswerRequest, draft: RouteResult) -> tuple[Held, ...]:
    """What the draft was written from, as far as the tokens that are left allow: cited sources first.

    Not the cited ones alone: a short answer ("321 [S6].") cites its last link and rests on the others as well. A
    passage that compression took out of the context stands in full where it is cited, else as the excerpt that the
    writer saw.
    """
    cited = {citation.passage_id for citation in draft.citations}
    held = sorted(request.held, key=lambda item: item.passage.passage_id not in cited)
    budget = state.limits.max_tokens - state.usage.billed_tokens - _TOKENS
    chosen = fit(llm, replace(request, held=tuple(held)), budget)
    recorded = (item if item.passage.passage_id in cited else excerpt(item, request.facts) for item in request.recorded)
    return tuple(sorted((*chosen, *recorded), key=lambda item: item.ref))


def reviewed(draft: RouteResult, review: Review) -> RouteResult:
    """What a review leaves of a draft where no search follows: its supported sentences, or that there is no answer.

    A draft that is of no use is none once nothing of it rests on a source, or all of it speaks of something else; what
    is left otherwise is half an answer and says so.
    """
    left = without(draft, review.unsupported)
    lost = bool(draft.citations) and not left.citations
    if not left.text or (not review.useful and (lost or review.off_topic)):
        return replace(left, text=NO_ANSWER_FOUND, citations=(), outcome=Outcome.UNANSWERABLE, notices=draft.notices)
    notices = [] if review.complete else [UNCHECKED]
    if not review.useful:
        notices.append(IN_PART)
    if not notices:
        return left
    outcome = Outcome.ANSWERED_WITH_CAVEAT if left.outcome is Outcome.ANSWERED else left.outcome
    return replace(left, outcome=outcome, notices=tuple(dict.fromkeys((*left.notices, *notices))))


def without(draft: RouteResult, spans: Sequence[tuple[int, int]]) -> RouteResult:
    """The draft without some of its sentences; citations of what stays move with their sentences."""
    if not spans:
        return draft
    kept: list[str] = []
    shifts: list[tuple[int, int, int]] = []  # start and end of a kept stretch, and how far it moves
    length = at = 0
    for start, end in [*sorted(spans), (len(draft.text), len(draft.text))]:
        stretch = draft.text[at:start]
        bare = not length or kept[-1][-1:].isspace()
        lead = len(stretch) - len(stretch.lstrip()) if bare else 0
        kept.append(stretch[lead:])
        shifts.append((at + lead, start, length - at - lead))
        length += len(stretch) - lead
        at = end
    text = "".join(kept).rstrip()
    citations = [
        replace(citation, answer_start=citation.answer_start + shift, answer_end=citation.answer_end + shift)
        for citation in draft.citations
        for start, end, shift in shifts
        if start <= citation.answer_start and citation.answer_end <= end and citation.answer_end + shift <= len(text)
    ]
    return replace(
        draft,
        text=text,
        citations=tuple(citations),
        outcome=Outcome.ANSWERED_WITH_CAVEAT if draft.outcome is Outcome.ANSWERED else draft.outcome,
        notices=(*draft.notices, DROPPED),
    )


async def emit_whole(result: RouteResult, emit: Emit) -> None:
    """Emit an answer that was held back: its text piece by piece, each citation behind the text it belongs to."""
    shown = 0
    ordered: list[tuple[int, Citation]] = sorted(
        enumerate(result.citations), key=lambda item: (item[1].answer_end, item[0])
    )
    for index, (_, citation) in enumerate(ordered):
        if citation.answer_end > shown:
            await emit(TokenEmitted(result.text[shown : citation.answer_end]))
            shown = citation.answer_end
        await emit(CitationMade(index, citation))
    if shown < len(result.text):
        await emit(TokenEmitted(result.text[shown:]))


class Withheld:
    """An `Emit` that keeps what is said: the draft of an answer is not shown before it is checked."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.said: list[EventBody] = []

    async def __call__(self, body: EventBody) -> None:
        """Keep text and citations; let everything else pass."""
        if isinstance(body, TokenEmitted | CitationMade):
            self.said.append(body)
        else:
            await self._emit(body)
