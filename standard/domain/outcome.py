"""What a route ends with before the gateway adds decision, timings and id and makes it an Answer."""

from __future__ import annotations

from dataclasses import dataclass

from standard.domain.answer import AnswerSource, Citation, Outcome, StopReason, Usage


@dataclass(frozen=True, slots=True)
class RouteResult:
    """The end of a route's work. `text` equals the concatenation of all TokenEmitted texts of the route.

    `escalate` is set by the standard route instead of an answer where the evidence asks for the agentic one (nothing
    was emitted then); it holds the reason.
    """

    text: str
    source: AnswerSource
    outcome: Outcome
    stop_reason: StopReason
    citations: tuple[Citation, ...] = ()
    clarification: str = ""
    notices: tuple[str, ...] = ()
    steps: int = 1
    usage: Usage = Usage()
    escalate: str = ""
