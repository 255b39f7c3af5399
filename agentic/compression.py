"""Prevents: a context that grows with every step until it no longer fits, costs too much, or hides what matters.

Every few steps a model turns the raw passages into a short record: facts, open questions and contradictions, each with
the sources that say so. The passages' text leaves the context, their numbers and ids stay, and the final answer sees
the sentences that bear the facts out. Snippets are never compressed, and nothing is if it would grow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict

from agentic.calls import ask_structured
from agentic.prompting import DATA_RULE, fact_text, note_sections, question_sections, source_sections
from agentic.replies import Claim, Line, closed, first_items, known_fact
from agentic.state import Evidence, Fact, Summary
from standard.domain.answer import Usage
from standard.llm.protocol import Purpose
from standard.sandbox.prompt import PromptText, instruction, join
from standard.sandbox.render import visible_text
from standard.words import content_stems, is_number, words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentic.state import RunState
    from standard.llm.protocol import Llm
    from standard.sandbox.render import Marker

MAX_FACTS = 24
_SECTION_TOKENS = 60
"""Tags and headers of one passage in a prompt."""
_OUTPUT_TOKENS = 900
"""300 words with their tags, as JSON."""
_LENGTHS = (
    (2_000, instruction("Write 200 to 300 words in all, fewer where the sources hold less.")),
    (1_650, instruction("Write at most 250 words in all, fewer where the sources hold less.")),
    (1_300, instruction("Write at most 200 words in all, fewer where the sources hold less.")),
    (0, instruction("Write at most 150 words in all, fewer where the sources hold less.")),
)
"""How long a record may be, by the tokens it replaces: a word with its share of tags costs two tokens, so that it takes
three tenths of them at most."""
_TOLD = 0.8
"""Share of a fact's words that earlier facts must hold to tell it already."""
_DENIALS = frozenset({"not", "no", "never", "none", "neither", "nor", "without"})


@dataclass(frozen=True, slots=True)
class Compressed:
    """The state after it; token counts of the context before and after; ids of the passages whose text left it."""

    state: RunState
    tokens_before: int
    tokens_after: int
    passage_ids: tuple[str, ...] = ()
    usage: Usage = Usage()


class Compress(Protocol):
    """Puts a summary in the place of raw passages."""

    async def __call__(self, state: RunState) -> Compressed:
        """Compress if it pays. May raise LlmUnavailable or UnreadableOutput."""
        ...


class SummaryReply(BaseModel):
    """The record as the model writes it."""

    model_config = ConfigDict(extra="ignore")
    facts: Annotated[list[Claim], BeforeValidator(first_items(MAX_FACTS))]
    open_questions: Annotated[list[Line], BeforeValidator(first_items(8))] = []
    contradictions: Annotated[list[Claim], BeforeValidator(first_items(8))] = []


_TEXT: Mapping[str, object] = {"type": "string"}
_CLAIMS: Mapping[str, object] = {
    "type": "array",
    "items": closed({"text": _TEXT, "sources": {"type": "array", "items": _TEXT}}),
}
SUMMARY_SCHEMA = closed(
    {"facts": _CLAIMS, "open_questions": {"type": "array", "items": _TEXT}, "contradictions": _CLAIMS}
)

_SYSTEM = join(
    "\n\n",
    [
        instruction(
            "You keep the record of a search: a short account of what the sources say on one question, so that "
            "their text need not be read again."
        ),
        DATA_RULE,
        instruction("""\
Reply with one JSON object:
- "facts": every statement of the sources that may help to answer the question, one sentence each, with the tags of its
  sources (["S1"]). Keep names, numbers, dates, units and conditions exactly as they stand. Keep earlier notes (K1 …)
  that still hold, with their sources. Leave out what has no bearing on the question.
- "open_questions": what the question needs and no source states.
- "contradictions": where sources disagree, with the tags of both.
Nothing from your own memory."""),
    ],
)


class LlmCompressor:
    """Compresses with the model."""

    def __init__(self, llm: Llm) -> None:
        self._llm = llm

    async def __call__(self, state: RunState) -> Compressed:
        """Compress all full passages of the context. Raises LlmUnavailable, UnreadableOutput."""
        held = state.evidence.in_context
        before = self._context_tokens(state)

        def prompt(marker: Marker) -> PromptText:
            return join(
                "\n\n",
                [
                    question_sections(state, marker),
                    *note_sections("Known before:", "K", [fact_text(fact) for fact in known_facts(state)], marker),
                    instruction("The sources:"),
                    source_sections(held, marker),
                    next(told for least, told in _LENGTHS if before >= least),
                ],
            )

        read = await ask_structured(
            self._llm,
            state,
            Purpose.COMPRESS,
            _SYSTEM,
            prompt,
            SummaryReply,
            SUMMARY_SCHEMA,
            max_tokens=_OUTPUT_TOKENS,
        )
        summary = summary_of(read.reply, state)
        after_state = _dropped(state, summary)
        after = self._context_tokens(after_state)
        if after >= before:
            return Compressed(state, before, before, usage=read.usage)
        ids = tuple(item.passage.passage_id for item in held)
        return Compressed(after_state, before, after, ids, read.usage)

    def _context_tokens(self, state: RunState) -> int:
        return context_tokens(state, self._llm)


def context_tokens(state: RunState, llm: Llm) -> int:
    """Tokens of the passages and the record that a prompt of this run would hold."""
    passages = sum(llm.count_tokens(visible_text(item.text)) + _SECTION_TOKENS for item in state.evidence.in_context)
    return passages + llm.count_tokens("\n".join(_lines(state.summary)))


def _lines(summary: Summary | None) -> Sequence[str]:
    if summary is None:
        return ()
    return [*map(fact_text, summary.facts), *summary.open_questions, *map(fact_text, summary.contradictions)]


def known_facts(state: RunState) -> tuple[Fact, ...]:
    """What an earlier record and the last judgement hold for known, without repeats."""
    facts = list(state.summary.facts) if state.summary is not None else []
    if state.last_judgement is not None and state.last_judgement.by == "llm":
        facts += state.last_judgement.known
    return distinct(facts)


def distinct(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """The facts without those that earlier ones tell: a judge repeats what a record holds, in other words.

    A fact is told where the earlier ones on its sources name all of these, every number and most words of it, and
    deny neither more nor less.
    """
    kept: list[Fact] = []
    for fact in facts:
        if not _told(fact, [one for one in kept if one == fact or set(one.refs) & set(fact.refs)]):
            kept.append(fact)
    return tuple(kept)


def _told(fact: Fact, earlier: Sequence[Fact]) -> bool:
    if not earlier or not {ref for one in earlier for ref in one.refs}.issuperset(fact.refs):
        return False
    if fact in earlier:
        return True
    text = " ".join(one.text for one in earlier)
    wanted, said = set(content_stems(fact.text)), set(content_stems(text))
    numbers = {word for word in wanted if is_number(word)}
    denials = _DENIALS.intersection(words(fact.text)), _DENIALS.intersection(words(text))
    return numbers <= said and denials[0] == denials[1] and len(wanted & said) >= _TOLD * len(wanted)


def summary_of(reply: SummaryReply, state: RunState) -> Summary:
    """The reply as a record. A known fact none of whose sources the reply still names is carried over as it was."""
    facts = [known_fact(claim, state) for claim in reply.facts]
    named = {ref for fact in facts for ref in fact.refs}
    facts += [fact for fact in known_facts(state) if fact.refs and not named.issuperset(fact.refs)]
    return Summary(
        facts=tuple(dict.fromkeys(facts)),
        open_questions=tuple(reply.open_questions),
        contradictions=tuple(known_fact(claim, state) for claim in reply.contradictions),
        step=state.steps,
    )


def _dropped(state: RunState, summary: Summary) -> RunState:
    gone = {item.ref for item in state.evidence.in_context}
    held = tuple(replace(item, dropped=True) if item.ref in gone else item for item in state.evidence.held)
    return replace(state, evidence=Evidence(held), summary=summary)
