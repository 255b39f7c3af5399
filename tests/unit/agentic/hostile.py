"""Controllers that try to keep a run from ending well: every one of them must meet a typed outcome."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from agentic.actions import (
    Action,
    Ask,
    Branch,
    FindLinked,
    Finish,
    Malformed,
    Plan,
    Proposal,
    Read,
    Search,
    SearchEach,
)
from agentic.judge import Judged
from agentic.state import Fact, Judgement, RunState
from agentic.structured import UnreadableOutput
from standard.domain.answer import Usage
from standard.domain.errors import LlmUnavailable

KINDS = ("repeater", "liar", "staller", "garbage", "caller", "planner", "asker", "breaker", "burner", "mixed")

WORDS = (
    "ferry pier captain deck tide harbour winter refund Kittiwake Razorbill Berg Nemo 2019 Q3 40 not delayed never "
    "\x00 \ud800 𝕏 " + "x" * 50
).split(" ")


@dataclass
class Hostile:
    """A controller and judge of one kind, seeded. `proposals` counts how often it was asked."""

    kind: str
    seed: int
    proposals: int = 0
    spent: list[Usage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def _usage(self, ceiling: int = 400) -> Usage:
        tokens = self.random.randrange(ceiling)
        usage = Usage(input_tokens=tokens, output_tokens=tokens // 4, llm_calls=1, cost_usd=tokens / 1e5)
        self.spent.append(usage)
        return usage

    async def propose(self, state: RunState) -> Proposal:
        self.proposals += 1
        kind = self.kind if self.kind != "mixed" else self.random.choice(KINDS[:-1])
        action = await self._action(kind, state)
        extra = self.random.randrange(20) if self.random.random() < 0.2 else 0
        return Proposal(action, extra_calls=extra, usage=self._usage(20_000 if kind == "burner" else 400))

    async def _action(self, kind: str, state: RunState) -> Action:
        number = self.proposals
        match kind:
            case "repeater":
                return Search(state.question.raw if self.random.random() < 0.5 else "the same thing again")
            case "liar":
                return self.random.choice(
                    (
                        Finish("sufficient"),
                        Finish("unanswerable"),
                        Read(self.random.randrange(-3, 40)),
                        FindLinked((self.random.randrange(-3, 40),)),
                        SearchEach((Search("piers", branch="none"),)),
                    )
                )
            case "staller":
                if self.random.random() < 0.5:
                    await asyncio.sleep(60.0)
                return Search(f"piers {number}")
            case "garbage":
                return self._garbage()
            case "planner" if state.plan and self.random.random() < 0.7:
                return SearchEach(tuple(Search(f"{self._text()} {number}", branch=f"b{index}") for index in range(6)))
            case "planner":
                return Plan(tuple(Branch(f"b{index}", f"piers {number} {index}") for index in range(6)))
            case "asker":
                return Ask("Which one?" if self.random.random() < 0.9 else " ")
            case "breaker":
                raise LlmUnavailable("away", kind=self.random.choice(("connect", "timeout", "server", "malformed")))
            case _:
                return Search(f"{self._text()} {number}")

    def _garbage(self) -> Action:
        pick = self.random.randrange(8)
        text = self._text()
        refs = tuple(self.random.randrange(-2, 30) for _ in range(self.random.randrange(4)))
        choices: tuple[Action, ...] = (
            Search(text, mode=self.random.choice(("hybrid", "keyword", "semantic")), branch=self.random.choice(WORDS)),
            SearchEach(tuple(Search(self._text(), branch=f"b{index}") for index in range(self.random.randrange(9)))),
            FindLinked(refs),
            Read(self.random.randrange(-2, 30), neighbours=True),
            Plan(tuple(Branch(self.random.choice("abc"), self._text(), ("z",)) for _ in refs)),
            Ask(text, (text, text)),
            Finish(self.random.choice(("sufficient", "partial", "unanswerable"))),
            Malformed("nonsense"),
        )
        return choices[pick]

    def _text(self) -> str:
        return " ".join(self.random.choices(WORDS, k=self.random.choice((0, 1, 3, 8, 90))))

    async def judge(self, state: RunState) -> Judged:
        kind = self.kind if self.kind != "mixed" else self.random.choice(KINDS[:-1])
        if kind == "breaker":
            raise LlmUnavailable("away", kind="server")
        if kind == "garbage" and self.random.random() < 0.3:
            raise UnreadableOutput("nonsense")
        if kind == "staller" and self.random.random() < 0.3:
            await asyncio.sleep(60.0)
        score = self.random.random()
        judgement = Judgement(
            state.steps,
            score,
            sufficient=kind == "liar",
            known=(Fact(self._text(), (self.random.randrange(-5, 99),)),),
            missing=(self._text(),),
        )
        relevant = frozenset(self.random.randrange(-5, 60) for _ in range(5))
        return Judged(judgement, relevant if self.random.random() < 0.5 else None, self._usage())
