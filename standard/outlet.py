"""Prevents: an answer, or anything else a run tells, that leaves a route without having been looked at.

Each route hands everything it emits to one `Outlet`: the text of the answer, generated, extracted or ours, with its
citations; questions back to the user; what a loop tells of its plans and queries. Text goes through the output guard,
so what a reader is shown and what the whole answer holds are the same characters, streamed or not. A block ends the
answer: what was shown stays, `OutputBlocked` follows, and then nothing.

The one exception are the words of an existing RAG that stands before or behind the standard route: its clients have
been getting them as they are, its own addresses included; it has seen no prompt of ours.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from standard.domain.answer import AnswerSource, Citation, Outcome, StopReason, Usage
from standard.domain.event import (
    CitationMade,
    ClarificationAsked,
    Degraded,
    GuardTripped,
    OutputBlocked,
    PassagesFound,
    PassagesScreened,
    PlanMade,
    QueryIssued,
    SufficiencyJudged,
    TokenEmitted,
)
from standard.domain.outcome import RouteResult
from standard.sandbox.canary import Secret, holds_canary
from standard.sandbox.output import GuardedAnswer, OutputGuard
from standard.sandbox.urls import UrlPolicy, url_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from standard.domain.event import Emit, EventBody
    from standard.domain.passage import ScanFinding

_MAY_HOLD_ADDRESS = re.compile(r"[^\x20-\x7e\n]|[:/\\&]|www", re.IGNORECASE)
LINKS_REMOVED = "Addresses that are not those of the sources were taken out of the answer."
ANSWER_WITHHELD = "The answer was cut off: what followed may give away the instructions of the service."


class Blocked(Exception):
    """The output guard ended the answer. Raised by an Outlet out of `emit`; never leaves a route."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Outlet:
    """An `Emit` with the output guard in it; one for each answer.

    `secret` is what must not get out of the prompt that asks for the answer, None where no model is asked. Addresses
    that may stand in the answer and in what is told beside it: those of the sources (`allow` before the first word, and
    those of every PassagesFound) and those under `allowlist`.
    """

    def __init__(self, emit: Emit, secret: Secret | None, allowlist: Sequence[str] = ()) -> None:
        self._emit = emit
        self._secrets = () if secret is None else (secret,)
        self._allowlist = allowlist
        self._sources: dict[str, None] = {}
        self._answer: GuardedAnswer | None = None
        self._shown: list[str] = []
        self._citations: list[Citation] = []
        self._reason = ""
        self._findings: tuple[ScanFinding, ...] = ()

    @property
    def text(self) -> str:
        """What was shown so far."""
        return "".join(self._shown)

    def allow(self, sources: Iterable[str]) -> None:
        """Let the addresses of these sources stand in the answer. Counts until its first word."""
        self._sources.update(dict.fromkeys(sources))

    def screened(self, findings: tuple[ScanFinding, ...]) -> None:
        """Tell of these findings before anything else; not at all where the route hands over to one that will."""
        self._findings = findings

    async def __call__(self, body: EventBody) -> None:
        """Emit what may be emitted. Raises Blocked, also for whatever comes after a block."""
        if self._reason:
            raise Blocked(self._reason)
        if self._findings:
            await self._tell_findings()
        if isinstance(body, TokenEmitted):  # by far the most frequent
            await self._say(body.text)
            return
        if isinstance(body, CitationMade):
            await self._say(body.citation)
            return
        if isinstance(body, PassagesFound):
            self.allow(found.uri for found in body.passages if found.uri)
        self._look_through(_said(body))
        await self._emit(_said_anew(body, self.cleaned))

    async def _tell_findings(self) -> None:
        if self._findings:
            findings, self._findings = self._findings, ()
            await self._emit(PassagesScreened(findings))

    async def _say(self, item: str | Citation) -> None:
        answer = self._answer
        if answer is None:
            answer = self._answer = GuardedAnswer(OutputGuard(self._secrets, self._policy()))
        shown = answer.feed((item,))
        if shown:
            await self._show(shown)
        if answer.reason:
            self._reason = answer.reason
            raise Blocked(self._reason)

    async def _show(self, items: Iterable[str | Citation]) -> None:
        for item in items:
            if isinstance(item, str):
                self._shown.append(item)
                await self._emit(TokenEmitted(item))
            else:
                self._citations.append(item)
                await self._emit(CitationMade(len(self._citations) - 1, item))

    def _look_through(self, texts: Iterable[str]) -> None:
        """Replies were looked through before they were used; this is the net under that."""
        if any(holds_canary(text, secret) for secret in self._secrets for text in texts):
            self._reason = "canary"
            raise Blocked(self._reason)

    def _policy(self) -> UrlPolicy:
        return _policy_of(tuple(self._sources), tuple(self._allowlist))

    def cleaned(self, text: str) -> str:
        """A whole text that stands beside the answer (a notice, an option, a query), as it may be shown."""
        if not self._secrets and not _MAY_HOLD_ADDRESS.search(text):
            return text
        guard = OutputGuard(self._secrets, self._policy())
        return guard.feed(text) + guard.finish()

    async def close(self, result: RouteResult) -> RouteResult:
        """End the answer: show what was held back and return the result with what really was shown.

        A result that hands over to another route passes as it is: nothing was shown. A blocked one ends here.
        """
        if result.escalate:
            return result
        await self._tell_findings()
        verdict = None
        if self._answer is not None:
            await self._show(self._answer.finish())
            verdict = self._answer.verdict
        if self._reason or result.outcome is Outcome.BLOCKED:
            return await self._blocked(result)
        outcome, notices = result.outcome, tuple(map(self.cleaned, result.notices))
        if verdict is not None and verdict.removed_links:
            notices = (*notices, LINKS_REMOVED)
            outcome = Outcome.ANSWERED_WITH_CAVEAT if outcome is Outcome.ANSWERED else outcome
        return replace(
            result,
            text=self.text,
            citations=tuple(self._citations),
            clarification=self.cleaned(result.clarification) if result.clarification else "",
            notices=notices,
            outcome=outcome,
        )

    async def close_blocked(self, source: AnswerSource, *, steps: int = 1, usage: Usage | None = None) -> RouteResult:
        """End an answer whose route was left by Blocked."""
        return await self._blocked(
            RouteResult("", source, Outcome.BLOCKED, StopReason.OUTPUT_BLOCKED, steps=steps, usage=usage or Usage())
        )

    async def _blocked(self, result: RouteResult) -> RouteResult:
        await self._emit(OutputBlocked(self._reason or "canary"))
        return replace(
            result,
            text=self.text,
            citations=tuple(self._citations),
            outcome=Outcome.BLOCKED,
            stop_reason=StopReason.OUTPUT_BLOCKED,
            clarification="",
            notices=(ANSWER_WITHHELD,),
        )


@lru_cache(maxsize=1024)
def _policy_of(sources: tuple[str, ...], allowlist: tuple[str, ...]) -> UrlPolicy:
    return url_policy(sources, allowlist)


def _said(body: EventBody) -> Iterable[str]:
    """Texts of an event that a model may have written."""
    match body:
        case QueryIssued():
            return (body.query, body.reason)
        case PlanMade():
            return [part.question for part in body.sub_questions]
        case SufficiencyJudged():
            return (*body.known, *body.missing, *body.contradictions, body.reason)
        case GuardTripped():
            return (body.reason, body.query)
        case ClarificationAsked():
            return (body.question, *body.options)
        case Degraded():
            return (body.notice,)
        case _:
            return ()


def _said_anew(body: EventBody, clean: Callable[[str], str]) -> EventBody:
    """The event with those texts cleaned: programs that show progress render them as Markdown."""
    match body:
        case QueryIssued():
            return replace(body, query=clean(body.query), reason=clean(body.reason))
        case PlanMade():
            parts = tuple(replace(part, question=clean(part.question)) for part in body.sub_questions)
            return replace(body, sub_questions=parts)
        case SufficiencyJudged():
            return replace(
                body,
                known=tuple(map(clean, body.known)),
                missing=tuple(map(clean, body.missing)),
                contradictions=tuple(map(clean, body.contradictions)),
                reason=clean(body.reason),
            )
        case GuardTripped():
            return replace(body, reason=clean(body.reason), query=clean(body.query))
        case ClarificationAsked():
            return ClarificationAsked(clean(body.question), tuple(map(clean, body.options)))
        case Degraded():
            return replace(body, notice=clean(body.notice))
        case _:
            return body
