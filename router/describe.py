"""One short line for people about each event."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from standard.domain import event as events

if TYPE_CHECKING:
    from standard.domain.event import EventBody


def describe(body: EventBody) -> str:
    """A line such as "Searching for …"; empty for pieces of the answer."""
    match body:
        case events.DecisionMade():
            decision = body.decision
            if decision.complex_probability is None:
                return f"Taking the {decision.route} route ({decision.reason})"
            return (
                f"Taking the {decision.route} route: complex with probability"
                f" {decision.complex_probability:.2f}, threshold {decision.threshold:.2f} ({decision.reason})"
            )
        case events.PlanMade():
            return f"Split into {len(body.sub_questions)} questions"
        case events.QueryIssued():
            return _step(body.action, _short(body.query))
        case events.PassagesFound():
            again = f", {body.duplicates} known" if body.duplicates else ""
            return f"Found {len(body.passages)} new passages{again}"
        case events.SufficiencyJudged():
            verdict = "enough" if body.sufficient else "not enough"
            return f"Evidence is {verdict} (score {body.score:.2f})"
        case events.GuardTripped():
            return f"{'Stopped' if body.stops else 'Refused'} by guard {body.guard}: {_short(body.reason)}"
        case events.ContextCompressed():
            return f"Compressed the context from {body.tokens_before} to {body.tokens_after} tokens"
        case events.Escalated():
            return f"Handing over to the {body.to_route} route: {body.reason}"
        case events.ClarificationAsked():
            return _short(body.question)
        case events.Degraded():
            return body.notice
        case events.OutputBlocked():
            return "The answer was withheld"
        case events.Completed():
            answer = body.answer
            return f"Done: {answer.outcome or 'dry run'} in {answer.timings.total_seconds:.2f} s"
        case events.CitationMade():
            return f"Cites {_short(body.citation.title or body.citation.document_id)}"
        case _:
            return _screened(body) if isinstance(body, events.PassagesScreened) else ""


def _step(action: str, query: str) -> str:
    """What is done, and with what; a passage without a title has no name to tell."""
    known = _ACTIONS.get(action, action.capitalize())
    return f"{known} {query}" if query else _UNNAMED.get(action, known)


def _screened(body: events.PassagesScreened) -> str:
    counts = Counter(finding.verdict for finding in body.findings)
    said = {"flag": "flagged", "neutralise": "neutralised", "quarantine": "withheld"}
    return "Passages by the injection scan: " + ", ".join(f"{n} {said.get(name, name)}" for name, n in counts.items())


_ACTIONS = {
    "search": "Searching for",
    "keyword": "Searching for the words",
    "semantic": "Searching for sentences like",
    "link": "Following links from",
    "read": "Reading",
}
_UNNAMED = {
    "link": "Following links from an untitled passage",
    "explore": "Explore an untitled passage",
    "read": "Reading an untitled passage",
}


def _short(text: str, limit: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
