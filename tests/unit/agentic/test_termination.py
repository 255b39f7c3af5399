"""Whatever a controller does, a run ends within its caps, with an answer and a typed outcome."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from agentic.controllers.offline import offline_pattern
from agentic.controllers.protocol import Pattern
from agentic.graph import recursion_limit
from agentic.run import AgenticParts, make_parts
from agentic.settings import MAX_STEPS, AgenticSettings, GuardSettings
from standard.domain.answer import Outcome, StopReason
from standard.domain.event import GuardTripped, QueryIssued, TokenEmitted
from standard.domain.question import Budget
from tests.support.memory_retriever import MemoryLibrary, embed, passage
from tests.unit.agentic.hostile import KINDS, Hostile
from tests.unit.agentic.scripted import PlainWriter, run

TEXTS = (
    "The ferry Kittiwake is 30 metres long and sails to Port Ness.",
    "Razorbill is 40 metres long; her captain is Anna Berg.",
    "Anna Berg was born in 1970 and joined in 1999.",
    "Port Ness has two piers and a slipway.",
    "In winter a refund is paid when a sailing is not made.",
    "Tide tables are posted in the harbour office.",
)


def collection(size: int) -> MemoryLibrary:
    return MemoryLibrary([passage(f"d{index}", TEXTS[index % len(TEXTS)] + f" Note {index}.") for index in range(size)])


@dataclass
class Setting:
    """A run's surroundings, drawn from a seed."""

    seed: int
    kind: str
    library: MemoryLibrary = field(init=False)
    hostile: Hostile = field(init=False)
    budget: Budget = field(init=False)
    parts: AgenticParts = field(init=False)

    def __post_init__(self) -> None:
        draw = random.Random(self.seed)
        self.library = collection(draw.choice((0, 1, 4, 12, 40)))
        self.hostile = Hostile(self.kind, self.seed)
        stalls = self.kind in {"staller", "mixed"}
        self.budget = Budget(
            max_steps=draw.choice((None, 1, 2, 5, 8, 20)),
            max_tokens=draw.choice((None, 256, 2_000)),
            max_seconds=0.02 if stalls else draw.choice((None, 5.0)),
            max_cost_usd=draw.choice((None, 0.0, 0.01)),
        )
        guards = GuardSettings(
            similarity=draw.choice(("need", "cosine", "off")),
            max_stale_steps=draw.choice((1, 2, 50)),
            check_references=draw.random() < 0.5,
        )
        pattern = Pattern(
            "decide", self.hostile, self.hostile, snippets=draw.random() < 0.3, judges_with_llm=draw.random() < 0.7
        )
        self.parts = make_parts(
            self.library,
            embed,
            PlainWriter(away=draw.random() < 0.2),
            offline_pattern(),
            patterns={"decide": pattern},
            settings=AgenticSettings(guards=guards),
        )


async def check_run(seed: int) -> None:
    """One run against one hostile controller; every promise about its end."""
    setting = Setting(seed, KINDS[seed % len(KINDS)])
    top_k = random.Random(seed).choice((1, 3, 5))
    result, events = await run(
        "Who is the captain of Razorbill?", setting.parts, setting.library, budget=setting.budget, top_k=top_k
    )
    assert isinstance(result.outcome, Outcome), seed
    assert isinstance(result.stop_reason, StopReason), seed
    assert result.text, seed
    assert result.text == "".join(event.text for event in events if isinstance(event, TokenEmitted)), seed
    cap = setting.budget.max_steps or AgenticSettings().max_steps
    assert 1 <= result.steps <= min(cap, MAX_STEPS), seed
    assert len([event for event in events if isinstance(event, QueryIssued)]) == result.steps or _cut_short(events), (
        seed
    )
    # Every proposal but the last few leads to a step or a refusal, and refusals in a row are few.
    assert setting.hostile.proposals <= 4 * (cap + 4), seed
    assert setting.hostile.proposals < recursion_limit(), seed
    _check_budget(setting, seed)


def _cut_short(events: Sequence[object]) -> bool:
    """Time may run out between the announcement of a search and its end."""
    return any(isinstance(event, GuardTripped) and event.guard == "wall_clock" for event in events)


def _check_budget(setting: Setting, seed: int) -> None:
    """Control may overshoot its share of the tokens by the call in flight alone."""
    caps = AgenticSettings()
    tokens = min(setting.budget.max_tokens or caps.max_tokens, caps.max_tokens)
    share = tokens - min(caps.answer_reserve_tokens, tokens // 2)
    before_last = sum(usage.billed_tokens for usage in setting.hostile.spent[:-1])
    assert before_last < share, seed


@pytest.mark.parametrize("start", range(0, 400, 40))
async def test_hostile_runs_end_with_a_typed_outcome(start: int) -> None:
    for seed in range(start, start + 40):
        await check_run(seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_ten_thousand_hostile_runs_end_with_a_typed_outcome() -> None:
    for seed in range(400, 10_600):
        await check_run(seed)
