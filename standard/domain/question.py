"""What is asked, by whom, and within which limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from standard.domain.passage import Scope
from standard.domain.text import UntrustedText


class Route(StrEnum):
    """How a question is answered."""

    STANDARD = "standard"
    AGENTIC = "agentic"


@dataclass(frozen=True, slots=True)
class Turn:
    """One earlier message of the conversation."""

    role: Literal["user", "assistant"]
    text: UntrustedText


@dataclass(frozen=True, slots=True)
class Budget:
    """Caps of one run. None = the configured default.

    max_steps 1-20; max_tokens >= 256, billed tokens in and out over the run; max_seconds > 0, wall clock;
    max_cost_usd >= 0. A cap is never an error: it ends in the best answer there is.
    """

    max_steps: int | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None
    max_cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class AnswerStyle:
    """How answers of a collection are written, as its administrators say: trusted, never from a document or a caller.

    `instructions` are added to the model's own; `language` is a BCP 47 tag, "" = the language of the question.
    """

    instructions: str = ""
    language: str = ""


PLAIN = AnswerStyle()
"""Nothing asked for."""


@dataclass(frozen=True, slots=True)
class Question:
    """A validated question.

    `route` forces a route (None = decide). `threshold` (0-1) overrides the policy's. `top_k` is 1-100. `deadline` is
    the event loop's time (loop.time()) at which an answer must be out, reserve already taken off; None = no deadline.
    `probe` marks what the gateway asks itself to watch itself: no sign of what people ask. `style` is the collection's,
    looked up by the gateway.
    `standalone` is a follow-up as it is understood without its history, settled by the gateway; None where the text is.
    """

    text: UntrustedText
    scope: Scope = Scope()
    history: tuple[Turn, ...] = ()
    route: Route | None = None
    threshold: float | None = None
    top_k: int = 5
    budget: Budget = field(default_factory=Budget)
    session_id: str = ""
    request_id: str = ""
    dry_run: bool = False
    deadline: float | None = None
    probe: bool = False
    style: AnswerStyle = PLAIN
    standalone: UntrustedText | None = None

    @property
    def asked(self) -> UntrustedText:
        """What is asked, whatever was said before."""
        return self.text if self.standalone is None else self.standalone
