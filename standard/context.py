"""What fits into one call: which passages, how much of the conversation, how long an answer. Pure.

Prevents prompts that overflow a model's window, and calls that a cap of the caller forbids.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from standard.domain.answer import StopReason
from standard.domain.passage import Passage
from standard.domain.text import UntrustedText
from standard.llm.tokens import estimate_tokens
from standard.prompts import ANSWER_FROM_PASSAGES
from standard.retrieval.order import best_at_edges
from standard.sandbox.render import HEADER_LIMIT, tag_passages, visible_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from standard.domain.passage import RetrievedPassage
    from standard.domain.question import Question, Turn
    from standard.llm.config import Price
    from standard.sandbox.render import TaggedPassage

MIN_OUTPUT_TOKENS = 48
"""An answer with less room than this is not worth a call."""
_SECTION_TOKENS = 80  # two tags with a key each, names of header fields
_CANARY_TOKENS = 64  # two times 128 random bits in hex, which tokenizers cut small
_OWN_TOKENS = estimate_tokens(ANSWER_FROM_PASSAGES.value) + _CANARY_TOKENS + 120  # and our words between sections
_LONGEST_QUESTION = 4_000  # tokens of the question that a prompt takes at most
_WORTH_CUTTING = 400  # with less room than this not even a part of a passage goes in
_CUT = " …"


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """Bounds of a call, in tokens: the whole prompt, the conversation in it, the answer."""

    context_tokens: int = 8192
    history_tokens: int = 1200
    max_output_tokens: int = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The caller's caps: when it must be over (the event loop's time), billed tokens, US dollars. None = no cap."""

    deadline: float | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A call that fits. `capped_by` tells which cap of the caller shortens the answer, `blocked_by` which forbids it.

    `shown` are the passages of the prompt, in its order; `sources` the same uncut, which citations are of.
    `input_tokens` is an estimate that errs upwards.
    """

    sources: tuple[TaggedPassage, ...]
    shown: tuple[TaggedPassage, ...]
    history: tuple[Turn, ...]
    question: UntrustedText
    input_tokens: int
    max_output_tokens: int
    capped_by: StopReason | None = None
    blocked_by: StopReason | None = None


def plan_call(
    question: Question,
    retrieved: Sequence[RetrievedPassage],
    limits: Limits,
    config: ContextConfig,
    price: Price | None = None,
) -> Plan:
    """Choose what goes into the prompt. `retrieved` is best first and not empty.

    Passages go in whole while they fit, best first; the best one is cut where it alone is too long. They are then put
    with the best at the edges and tagged in that order.
    """
    asked = shortened(question.text, _LONGEST_QUESTION)
    history = recent_turns(question.history, config.history_tokens)
    bare = _frame_tokens(asked, history) + estimate_tokens(question.style.instructions)
    room = config.context_tokens - bare
    if limits.max_tokens is not None:
        room = min(room, limits.max_tokens - bare - MIN_OUTPUT_TOKENS)
    passages, size = fitting([item.passage for item in retrieved], room)
    shown = tag_passages(best_at_edges(passages))
    whole = {item.passage.passage_id: item.passage for item in retrieved}
    sources = tuple(replace(item, passage=whole[item.passage.passage_id]) for item in shown)
    input_tokens = bare + size
    output, capped_by = _output_tokens(input_tokens, limits, config, price)
    blocked = output < MIN_OUTPUT_TOKENS or not sources
    return Plan(
        sources=sources,
        shown=shown,
        history=history,
        question=asked,
        input_tokens=input_tokens,
        max_output_tokens=output,
        capped_by=capped_by,
        blocked_by=(capped_by or StopReason.TOKEN_BUDGET) if blocked else None,
    )


def _output_tokens(
    input_tokens: int, limits: Limits, config: ContextConfig, price: Price | None
) -> tuple[int, StopReason | None]:
    """How long the answer may be, and which cap of the caller says so."""
    output, capped_by = config.max_output_tokens, None
    if limits.max_tokens is not None and limits.max_tokens - input_tokens < output:
        output, capped_by = limits.max_tokens - input_tokens, StopReason.TOKEN_BUDGET
    if limits.max_cost_usd is not None and price is not None and price.output > 0:
        left = limits.max_cost_usd - input_tokens * price.input / 1e6
        affordable = int(left / price.output * 1e6)
        if affordable < output:
            output, capped_by = affordable, StopReason.COST_BUDGET
    return output, capped_by


def fitting(passages: Sequence[Passage], room: int) -> tuple[tuple[Passage, ...], int]:
    """The passages that fit into `room` tokens, best first and whole, and the tokens they take.

    Where even the first is too long it goes in alone and cut.
    """
    kept: list[Passage] = []
    taken = 0
    for passage in passages:
        size = _passage_tokens(passage)
        if taken + size <= room:
            kept.append(passage)
            taken += size
        elif not kept and room > _WORTH_CUTTING:
            header = size - estimate_tokens(visible_text(passage.text))
            return (replace(passage, text=shortened(passage.text, room - header)),), room
    return tuple(kept), taken


def recent_turns(turns: Sequence[Turn], room: int) -> tuple[Turn, ...]:
    """The last turns that fit into `room` tokens, oldest first; a long one is cut at its end."""
    kept: list[Turn] = []
    for turn in reversed(turns[-40:]):
        text = shortened(turn.text, max(room // 2, 0))
        size = estimate_tokens(text.raw) + _SECTION_TOKENS
        if size > room:
            break
        kept.append(replace(turn, text=text))
        room -= size
    return tuple(reversed(kept))


def shortened(text: UntrustedText, tokens: int) -> UntrustedText:
    """The beginning of a text that costs at most about `tokens`; an ellipsis tells that it was cut."""
    raw = text.raw
    if len(raw) // 4 <= tokens and estimate_tokens(raw) <= tokens:
        return text
    low, high = 0, min(len(raw), 6 * max(tokens, 0))
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(raw[:middle]) <= tokens:
            low = middle
        else:
            high = middle - 1
    head = raw[:low]
    return UntrustedText((head[: head.rfind(" ")] if " " in head[-80:] else head) + _CUT)


def _frame_tokens(question: UntrustedText, history: Sequence[Turn]) -> int:
    """Tokens of a prompt without its passages: our words, the conversation, the question."""
    texts = [visible_text(question), *(visible_text(turn.text) for turn in history)]
    return _OWN_TOKENS + sum(estimate_tokens(text) + _SECTION_TOKENS for text in texts)


def _passage_tokens(passage: Passage) -> int:
    header = sum(estimate_tokens(field[:HEADER_LIMIT]) for field in _headers(passage))
    return estimate_tokens(visible_text(passage.text)) + header + _SECTION_TOKENS


def _headers(passage: Passage) -> tuple[str, str, str]:
    return passage.title.raw, passage.uri, passage.section_heading
