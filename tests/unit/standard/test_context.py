"""What goes into a prompt fits: the context, the caller's caps, the conversation."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from standard.context import (
    MIN_OUTPUT_TOKENS,
    ContextConfig,
    Limits,
    Plan,
    fitting,
    plan_call,
    recent_turns,
    shortened,
)
from standard.domain.answer import StopReason
from standard.domain.passage import RetrievedPassage
from standard.domain.question import Question, Turn
from standard.domain.text import UntrustedText
from standard.llm.config import Price
from standard.llm.tokens import estimate_tokens
from standard.prompts import answer_messages
from standard.sandbox.render import with_marker
from standard.screening import screen_passages
from tests.support.ferry_passages import found, retrieved

QUESTION = Question(UntrustedText("How strong may the wind be?"))
CONFIG = ContextConfig()


def prompt_tokens(plan: Plan) -> int:
    messages = with_marker(lambda marker: answer_messages(plan.question, plan.history, plan.shown, marker))
    return sum(estimate_tokens(message.content.value) + 4 for message in messages)


def sized(words: int, rank: int = 0) -> RetrievedPassage:
    return retrieved("wind", rank, text="word " * words)


def test_everything_goes_in_where_it_fits_the_best_first_and_the_second_last() -> None:
    plan = plan_call(QUESTION, found("wind", "crew", "refunds", "pets", "history").passages, Limits(), CONFIG)
    assert [item.tag for item in plan.sources] == ["S1", "S2", "S3", "S4", "S5"]
    order = [item.passage.document_id for item in plan.sources]
    assert (order[0], order[-1]) == ("wind", "crew")
    assert (plan.capped_by, plan.blocked_by) == (None, None)
    assert plan.max_output_tokens == CONFIG.max_output_tokens


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 300)), min_size=1, max_size=8),
    st.lists(st.integers(0, 2000), max_size=8),
    st.integers(0, 4000),
    st.none() | st.integers(256, 20_000),
    st.none() | st.floats(0, 0.05),
    st.integers(512, 12_000),
)
def test_a_planned_call_keeps_every_bound(
    sizes: list[tuple[int, int]],
    turns: list[int],
    asked: int,
    max_tokens: int | None,
    max_cost: float | None,
    context: int,
) -> None:
    passages = []
    for rank, (words, title) in enumerate(sizes):
        item = sized(words, rank)
        passages.append(replace(item, passage=replace(item.passage, title=UntrustedText("t" * title))))
    question = Question(
        UntrustedText("why " * asked + "?"), history=tuple(Turn("user", UntrustedText("x " * n)) for n in turns)
    )
    config = ContextConfig(context_tokens=context)
    price = Price(1.0, 0.1, 4.0)
    plan = plan_call(question, passages, Limits(None, max_tokens, max_cost), config, price)
    if plan.blocked_by is not None:
        assert plan.max_output_tokens < MIN_OUTPUT_TOKENS or not plan.sources
        return
    real = prompt_tokens(plan)
    assert real <= plan.input_tokens
    assert real <= context
    if max_tokens is not None:
        assert real + plan.max_output_tokens <= max_tokens
    if max_cost is not None:
        assert real * price.input + plan.max_output_tokens * price.output <= max_cost * 1e6 + 1e-6
    assert plan.max_output_tokens >= MIN_OUTPUT_TOKENS


def test_a_cap_that_shortens_is_named() -> None:
    passages = found("wind").passages
    whole = plan_call(QUESTION, passages, Limits(), CONFIG)
    tokens = plan_call(QUESTION, passages, Limits(max_tokens=whole.input_tokens + 100), CONFIG)
    assert (tokens.max_output_tokens, tokens.capped_by) == (100, StopReason.TOKEN_BUDGET)
    price = Price(0.0, 0.0, 10.0)
    money = plan_call(QUESTION, passages, Limits(max_cost_usd=0.002), CONFIG, price)
    assert (money.max_output_tokens, money.capped_by) == (200, StopReason.COST_BUDGET)
    assert plan_call(QUESTION, passages, Limits(max_cost_usd=0.0), CONFIG, price).blocked_by is StopReason.COST_BUDGET
    assert plan_call(QUESTION, passages, Limits(max_cost_usd=0.0), CONFIG).blocked_by is None, "no price, no cost"


def test_a_passage_too_long_for_all_goes_in_cut_and_alone() -> None:
    kept, size = fitting([sized(5000).passage, sized(10, 1).passage], 1000)
    assert len(kept) == 1
    assert kept[0].text.raw.endswith(" …")
    assert size <= 1000
    assert estimate_tokens(kept[0].text.raw) > 700


def test_a_long_passage_in_the_middle_makes_room_for_shorter_ones() -> None:
    kept, _ = fitting([sized(10).passage, sized(5000, 1).passage, sized(20, 2).passage], 1000)
    assert [len(passage.text.raw.split()) for passage in kept] == [10, 20]


def test_the_last_turns_are_kept_in_order() -> None:
    turns = tuple(Turn("user", UntrustedText(f"turn {number} " + "x " * 100)) for number in range(100))
    kept = recent_turns(turns, 1000)
    assert 2 <= len(kept) <= 8
    assert [turn.text.raw.split()[1] for turn in kept] == [str(number) for number in range(100 - len(kept), 100)]
    assert recent_turns((), 1000) == ()


@given(st.text(max_size=500), st.integers(0, 200))
def test_a_shortened_text_is_its_beginning(text: str, tokens: int) -> None:
    short = shortened(UntrustedText(text), tokens).raw
    if short != text:
        assert text.startswith(short.removesuffix(" …"))
        assert estimate_tokens(short) <= tokens + 2


def test_quarantined_passages_are_not_usable() -> None:
    passages = (retrieved("wind", verdict="quarantine"), retrieved("crew", 1, verdict="flag"))
    screened = screen_passages(passages)
    assert [item.passage.document_id for item in screened.passages] == ["crew"]
    assert [(item.passage_id, item.verdict) for item in screened.findings] == [
        (passages[0].passage.passage_id, "quarantine"),
        (passages[1].passage.passage_id, "flag"),
    ]
