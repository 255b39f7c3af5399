"""Writes a run's answer with the machinery of the standard route: the same prompt, citations, and extractive sentences.

What the loop adds are notes: facts held for known, gaps and contradictions. They stand in sections as untrusted as the
passages, and the answer may cite passages alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentic.compression import distinct
from agentic.prompting import fact_text, note_sections, tag_of
from standard.citations.quote import QuotedPassage
from standard.domain.answer import AnswerSource, Outcome, StopReason
from standard.domain.errors import LlmUnavailable
from standard.domain.event import CitationMade, TokenEmitted
from standard.domain.outcome import RouteResult
from standard.domain.text import UntrustedText
from standard.extractive.extract import draft, finish, shipped_model
from standard.generation import generate
from standard.llm.protocol import LlmRequest, Message, Purpose
from standard.pipeline import FILTERED, IN_PART, LLM_BROKE_OFF, OUT_OF_TOKENS, UNCITED, WEAK_EVIDENCE
from standard.prompts import NO_ANSWER_FOUND, NOTHING_FOUND, answer_messages, answer_task
from standard.retrieval.order import best_at_edges
from standard.sandbox.guarded_llm import guarded
from standard.sandbox.prompt import join
from standard.sandbox.render import TaggedPassage, visible_text, with_marker
from standard.screening import extractable, shown_text
from standard.words import content_stems, is_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentic.answer import AnswerRequest
    from agentic.state import Fact, Held
    from standard.domain.event import Emit
    from standard.domain.passage import RetrievedPassage
    from standard.generation import Generated
    from standard.llm.protocol import Llm
    from standard.sandbox.canary import Secret
    from standard.sandbox.render import Marker

MAX_PASSAGES = 12
MAX_EXTRACT_PASSAGES = 12
_MAX_BEARING = 6
"""Sentences of a compressed passage that one fact brings back at most."""
_SECTION_OVERHEAD = 60
_PROMPT_OVERHEAD = 600


class StandardWriter:
    """An AnswerWriter. Without an `llm` only `extract` may be called. `answer_tokens` caps the length of an answer."""

    def __init__(self, llm: Llm | None, *, answer_tokens: int = 1024) -> None:
        self._llm = None if llm is None else guarded(llm)
        self._answer_tokens = answer_tokens

    @property
    def secret(self) -> Secret | None:
        """What of the answering prompt must not get out."""
        return None if self._llm is None else self._llm.secret(answer_task())

    async def generate(self, request: AnswerRequest, emit: Emit) -> RouteResult:
        """Stream an answer of the model. Raises LlmUnavailable only before anything was emitted."""
        if self._llm is None:
            raise LlmUnavailable("no language model is configured", kind="connect")
        request = replace(request, facts=distinct(request.facts))
        output = min(self._answer_tokens, max(64, request.max_total_tokens // 2))
        chosen = fit(self._llm, request, request.max_total_tokens - output)
        shown = (*best_at_edges(chosen), *(excerpt(held, request.facts) for held in request.recorded))
        call = LlmRequest(
            purpose=Purpose.ANSWER,
            messages=with_marker(lambda marker: prompt(request, shown, marker)),
            max_tokens=output,
            timeout_seconds=max(0.05, request.timeout_seconds),
        )
        everything = {held.ref: held for held in (*request.held, *request.recorded)}
        sources = [TaggedPassage(tag_of(held.ref), everything[held.ref].passage) for held in shown]
        return await _generated_result(await generate(self._llm, call, sources, emit), emit)

    async def extract(self, request: AnswerRequest, emit: Emit) -> RouteResult:
        """Answer with sentences of the passages, or say that they hold none."""
        held = (*request.held, *request.recorded)[:MAX_EXTRACT_PASSAGES]
        found = extractable([item.found for item in held])
        return await _extracted(request, found, emit)


def excerpt(held: Held, facts: Sequence[Fact]) -> Held:
    """A compressed passage, as far as it was read, cut to the sentences that bear out the facts which rest on it."""
    passage = QuotedPassage(replace(held.passage, text=held.text))
    spans = sorted({span for fact in facts if held.ref in fact.refs for span in _bearing(passage, fact.text)})
    quoted = " … ".join(passage.text[start:end] for start, end in spans)
    return replace(held, section=UntrustedText(quoted or shown_text(held.passage)[:400]))


def _bearing(passage: QuotedPassage, claim: str) -> list[tuple[int, int]]:
    """Spans of the sentence nearest to the claim, and of others with a number or two words of it not found before.

    A fact of a table takes several rows, and what is nearest to "contract manager: head of terminals" is a heading.
    """
    spans: list[tuple[int, int]] = []
    rest = set(content_stems(claim))
    while rest and len(spans) < _MAX_BEARING:
        _, span = passage.best_match(" ".join(sorted(rest)) if spans else claim)
        found = rest.intersection(content_stems(passage.text[slice(*span)]))
        if spans and len(found) < 2 and not any(is_number(word) for word in found):
            break
        spans.append(span)
        rest -= found
    return spans


def fit(llm: Llm, request: AnswerRequest, tokens: int) -> tuple[Held, ...]:
    """The most useful passages that fit into a prompt of this many tokens; at least one if there is any."""
    notes = [fact_text(fact) for fact in (*request.facts, *request.contradictions)] + list(request.gaps)
    excerpts = [excerpt(held, request.facts).text.raw for held in request.recorded]
    texts = [request.question.raw, request.style.instructions, *notes, *excerpts]
    left = tokens - _PROMPT_OVERHEAD - llm.count_tokens("\n".join(texts))
    left -= _SECTION_OVERHEAD * len(excerpts)
    chosen: list[Held] = []
    for held in request.held:
        cost = llm.count_tokens(visible_text(held.text)) + _SECTION_OVERHEAD
        if chosen and (cost > left or len(chosen) == MAX_PASSAGES):
            continue
        chosen.append(held)
        left -= cost
    return tuple(chosen)


def prompt(request: AnswerRequest, shown: Sequence[Held], marker: Marker) -> tuple[Message, ...]:
    """The prompt of the standard route with the loop's notes before the passages."""
    tagged = [TaggedPassage(tag_of(held.ref), replace(held.passage, text=held.text)) for held in shown]
    facts = [fact_text(fact) for fact in request.facts]
    disputed = [fact_text(fact) for fact in request.contradictions]
    notes = [
        *note_sections("Notes of the search; rely on them only where a passage bears them out:", "K", facts, marker),
        *note_sections("What the search did not find; say so if it matters:", "M", request.gaps, marker),
        *note_sections("Where sources seemed to contradict each other:", "C", disputed, marker),
    ]
    return answer_messages(
        request.question,
        request.history,
        tagged,
        marker,
        notes=join("\n\n", notes) if notes else None,
        style=request.style,
    )


async def _generated_result(generated: Generated, emit: Emit) -> RouteResult:
    if generated.declined:
        await emit(TokenEmitted(NO_ANSWER_FOUND))
        return RouteResult(
            text=NO_ANSWER_FOUND,
            source=AnswerSource.GENERATED,
            outcome=Outcome.UNANSWERABLE,
            stop_reason=StopReason.NO_EVIDENCE,
            usage=generated.usage,
        )
    if generated.finish_reason == "blocked":
        return RouteResult(
            "", AnswerSource.GENERATED, Outcome.BLOCKED, StopReason.OUTPUT_BLOCKED, usage=generated.usage
        )
    notices = []
    if generated.finish_reason in _UNFINISHED:
        notices.append(_UNFINISHED[generated.finish_reason])
    if generated.partial:
        notices.append(IN_PART)
    if not generated.citations:
        notices.append(UNCITED)
    return RouteResult(
        text=generated.text,
        source=AnswerSource.GENERATED,
        outcome=Outcome.ANSWERED_WITH_CAVEAT if notices else Outcome.ANSWERED,
        stop_reason=StopReason.LLM_UNAVAILABLE if generated.finish_reason == "cut" else StopReason.SUFFICIENT,
        citations=generated.citations,
        notices=tuple(notices),
        usage=generated.usage,
    )


_UNFINISHED = {"cut": LLM_BROKE_OFF, "length": OUT_OF_TOKENS, "content_filter": FILTERED}


async def _extracted(request: AnswerRequest, found: Sequence[RetrievedPassage], emit: Emit) -> RouteResult:
    model = shipped_model()
    extraction = finish(draft(request.question.raw, found, request.term_idf, model=model), None, model=model)
    if not extraction.text or extraction.evidence < model.abstain:
        text = NO_ANSWER_FOUND if found else NOTHING_FOUND
        await emit(TokenEmitted(text))
        return RouteResult(text, AnswerSource.EXTRACTIVE, Outcome.UNANSWERABLE, StopReason.NO_EVIDENCE)
    shown = 0
    for index, citation in enumerate(extraction.citations):
        await emit(TokenEmitted(extraction.text[shown : citation.answer_end]))
        await emit(CitationMade(index, citation))
        shown = citation.answer_end
    if shown < len(extraction.text):
        await emit(TokenEmitted(extraction.text[shown:]))
    doubtful = extraction.evidence < model.caveat
    return RouteResult(
        text=extraction.text,
        source=AnswerSource.EXTRACTIVE,
        outcome=Outcome.ANSWERED_WITH_CAVEAT if doubtful else Outcome.ANSWERED,
        stop_reason=StopReason.SUFFICIENT,
        citations=extraction.citations,
        notices=(WEAK_EVIDENCE,) if doubtful else (),
    )
