"""Prevents: sentences of an answer that its sources do not bear out.

A draft is written without being shown. One call checks each of its sentences against the passages it cites and says
whether the whole is of use. Where it is not, one more search is made for what is missing; what no source bears out is
dropped. Source: the questions of Self-RAG (Asai et al., ICLR 2024), asked of an ordinary model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

from agentic.actions import MAX_QUERY_LENGTH
from agentic.calls import ask_structured
from agentic.prompting import DATA_RULE, question_sections, source_sections
from agentic.replies import Line, closed, first_items
from standard.domain.answer import Outcome, Usage
from standard.domain.event import CitationMade, TokenEmitted
from standard.domain.text import UntrustedText
from standard.llm.protocol import Purpose
from standard.sandbox.prompt import PromptText, instruction, join
from standard.sandbox.render import render_notes
from standard.sentences import sentence_spans

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentic.state import Held, RunState
    from standard.domain.answer import Citation
    from standard.domain.event import Emit, EventBody
    from standard.domain.outcome import RouteResult
    from standard.llm.protocol import Llm
    from standard.sandbox.render import Marker

MAX_SENTENCES = 40
DROPPED = "Sentences that no source bears out were left out."
_TOKENS = 800


class SentenceReply(BaseModel):
    """The verdict on one sentence."""

    model_config = ConfigDict(extra="ignore")
    id: Line
    supported: bool


class CritiqueReply(BaseModel):
    """The verdict on a draft."""

    model_config = ConfigDict(extra="ignore")
    sentences: Annotated[list[SentenceReply], BeforeValidator(first_items(MAX_SENTENCES))]
    useful: bool
    missing: Line = ""


_TEXT: Mapping[str, object] = {"type": "string"}
CRITIQUE_SCHEMA = closed(
    {
        "sentences": {"type": "array", "items": closed({"id": _TEXT, "supported": {"type": "boolean"}})},
        "useful": {"type": "boolean"},
        "missing": _TEXT,
    }
)

_SYSTEM = join(
    "\n\n",
    [
        instruction("You check the draft of an answer against its sources, sentence by sentence."),
        DATA_RULE,
        instruction("""\
Reply with one JSON object:
- "sentences": for each sentence of the draft (tags D1, D2 …) its "id" and whether it is "supported": the sources state
  it, or it follows from what they state, about the same person, place or thing. A sentence that states no fact (a
  heading, a word to the reader, that something is not known) is supported.
- "useful": whether the supported sentences alone answer the question.
- "missing": where they do not, one short search for what is missing, in a document's words; else empty."""),
    ],
)


@dataclass(frozen=True, slots=True)
class Review:
    """A draft's verdict: spans of its unsupported sentences, whether the rest is of use, what to search for if not."""

    unsupported: tuple[tuple[int, int], ...]
    useful: bool
    query: str
    usage: Usage


class Critic:
    """Reviews drafts with the model."""

    def __init__(self, llm: Llm) -> None:
        self._llm = llm

    async def review(self, state: RunState, draft: RouteResult) -> Review:
        """Check a generated draft. Raises LlmUnavailable, UnreadableOutput."""
        spans = sentence_spans(draft.text)[:MAX_SENTENCES]
        sources = cited_sources(state, draft)

        def prompt(marker: Marker) -> PromptText:
            sentences = {f"D{at}": UntrustedText(draft.text[slice(*span)]) for at, span in enumerate(spans, 1)}
            return join(
                "\n\n",
                [
                    question_sections(state, marker),
                    instruction("The sources:"),
                    source_sections(sources, marker),
                    instruction("The draft, sentence by sentence:"),
                    render_notes(sentences, marker),
                ],
            )

        read = await ask_structured(
            self._llm, state, Purpose.CRITIQUE, _SYSTEM, prompt, CritiqueReply, CRITIQUE_SCHEMA, max_tokens=_TOKENS
        )
        refused = {item.id.strip("[] ") for item in read.reply.sentences if not item.supported}
        unsupported = tuple(span for at, span in enumerate(spans, 1) if f"D{at}" in refused)
        query = "" if read.reply.useful else read.reply.missing.strip()[:MAX_QUERY_LENGTH]
        return Review(unsupported, read.reply.useful, query, read.usage)


def cited_sources(state: RunState, draft: RouteResult) -> tuple[Held, ...]:
    """The sources that the draft cites, in order of acquisition; all of the context where it cites none."""
    cited = {citation.passage_id for citation in draft.citations}
    held = tuple(item for item in state.evidence.held if item.passage.passage_id in cited)
    return held or state.evidence.in_context


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
