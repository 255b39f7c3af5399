"""Ended runs as labelled questions that `pointsman train` takes: what the journal and feedback say was needed.

A question that needed the agentic route is complex, one that the standard route would have answered simple; see
router.routing.outcomes for the signs. A standard answer that nobody rated is no label: the router would learn to
believe itself. Nor is a question that no route could answer, unless somebody named the right one. The same question
with both labels, or one run with contradicting signs, is a conflict: shown, and left out.

Texts are used only while the setting `journal.questions` consents to keep them and only where it did when the question
was asked. Labels written to a file are a copy: erasing a subject does not reach it, so make the file anew after that.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from classifier.labels import MAX_QUESTION
from classifier.language import reads_as_english
from classifier.neutral import folded
from router.asked import asked_text
from router.journal.question import question_of
from router.routing.outcomes import needed_route, signs_of, verdict
from standard.domain.answer import Outcome
from standard.domain.errors import FailedPrecondition
from standard.domain.question import Route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.journal.codec import Consent
    from router.journal.finished import FinishedRun
    from router.routing.outcomes import Sign

MAX_LABELS = 100_000
"""Labelled questions that are kept at once; runs come newest first, so what does not fit is the oldest."""
SHOWN_CONFLICTS, SHOWN_RUNS = 20, 5
"""Conflicts that a report shows, and runs of each."""
LEFT_OUT = (
    "without_text",
    "unreadable",
    "unconfirmed",
    "unanswerable",
    "no_sign",
    "other_language",
    "too_long",
    "beyond_the_bound",
)
"""Why a run gave no label, in the order in which it is asked; `unconfirmed` is a standard answer that nobody rated."""


@dataclass(frozen=True, slots=True)
class Label:
    """A question with the route that it needed and the signs that say so; of its run what a line tells, no more.

    `about` is the rest of its line in a label file, `signs` what reports show of a conflict.
    """

    question: str
    needed: Route
    sources: tuple[str, ...]
    about: dict[str, Any]
    signs: tuple[Sign, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the line of a label file: question and label for training, the rest for people."""
        label = "complex" if self.needed is Route.AGENTIC else "simple"
        return {"question": self.question, "label": label, "because": list(self.sources), **self.about}


def _about(run: FinishedRun) -> dict[str, Any]:
    facts, feedback = run.facts, run.feedback
    decision, answer = facts.decision, facts.answer
    return {
        "request_id": run.request_id,
        "tenant": run.tenant,
        "collection": str((run.question or {}).get("collection", "")),
        "asked_at": run.created_at.isoformat(),
        "probability": decision.complex_probability if decision else None,
        "evidence_probability": decision.evidence_probability if decision else None,
        "chosen": decision.route.value if decision else None,
        "route": answer.route.value if answer else None,
        "steps": answer.steps if answer else None,
        "sufficient_at_first": facts.sufficient_at_first,
        "escalation": facts.escalation,
        "outcome": answer.outcome.value if answer and answer.outcome else None,
        "cost_usd": answer.usage.cost_usd if answer else None,
        "rating": feedback.rating,
        "correct_route": feedback.correct_route.value if feedback.correct_route else None,
    }


@dataclass(slots=True)
class LabelMaker:
    """Takes runs one after another, newest first, and keeps what they teach; `consent` is the setting in force."""

    consent: Consent
    most: int = MAX_LABELS
    runs: int = 0
    _left_out: Counter[str] = field(default_factory=Counter)
    _verdicts: Counter[str] = field(default_factory=Counter)
    _kept: dict[bytes, Label] = field(default_factory=dict)
    _seen: Counter[bytes] = field(default_factory=Counter)
    _conflicting: set[bytes] = field(default_factory=set)
    _shown: dict[bytes, list[dict[str, Any]]] = field(default_factory=dict)

    def take(self, run: FinishedRun) -> None:
        """Add a run."""
        self.runs += 1
        found = verdict(run.facts, run.feedback)
        self._verdicts["none" if found is None else found.value] += 1
        text, why = self._text_of(run)
        if text is None:
            self._left_out[why] += 1
            return
        signs = signs_of(run.facts, run.feedback)
        needed = needed_route(signs)
        about = _about(run)
        key = hashlib.sha256(folded(text).encode("utf-8", "replace")).digest()[:16]
        if needed is None:
            self._conflict(key, _told(text, about, signs))
            return
        sources = tuple(sign.source for sign in signs if sign.needed is needed)
        self._keep(key, Label(text, needed, sources, about, signs))

    def _keep(self, key: bytes, label: Label) -> None:
        known = self._kept.get(key)
        if key in self._conflicting:
            self._conflict(key, _told(label.question, label.about, label.signs))
        elif known is None and len(self._kept) >= self.most:
            self._left_out["beyond_the_bound"] += 1
        elif known is None or known.needed is label.needed:
            self._seen[key] += 1
            self._kept.setdefault(key, label)
        else:
            self._show(key, _told(known.question, known.about, known.signs))
            self._conflict(key, _told(label.question, label.about, label.signs))

    def _conflict(self, key: bytes, told: dict[str, Any]) -> None:
        self._seen[key] += 1
        self._conflicting.add(key)
        self._show(key, told)

    def _show(self, key: bytes, told: dict[str, Any]) -> None:
        if key in self._shown or len(self._shown) < SHOWN_CONFLICTS:
            runs = self._shown.setdefault(key, [])
            if len(runs) < SHOWN_RUNS:
                runs.append(told)

    def _text_of(self, run: FinishedRun) -> tuple[str | None, str]:
        """Return the question as the text model sees it, or None and why the run gives no label."""
        if self.consent != "text" or run.question is None or "top_k" not in run.question:
            return None, "without_text"
        if not run.readable:
            return None, "unreadable"
        problem = _without_sign(run)
        if problem:
            return None, problem
        try:
            text = asked_text(question_of(run.question, run.tenant, run.request_id, None)).strip()
        except FailedPrecondition:
            return None, "unreadable"
        if not text or not reads_as_english(text):
            return None, "other_language"
        return (text, "") if len(text) <= MAX_QUESTION else (None, "too_long")

    def labels(self) -> list[Label]:
        """Return the labels so far, newest first, without the conflicting ones."""
        return [label for key, label in self._kept.items() if key not in self._conflicting]

    def report(self) -> dict[str, Any]:
        """Return the counts, and the first conflicts."""
        labels = self.labels()
        complex_ = sum(label.needed is Route.AGENTIC for label in labels)
        sources = Counter(source for label in labels for source in label.sources)
        return {
            "runs": self.runs,
            "consent": self.consent,
            "labels": {"total": len(labels), "complex": complex_, "simple": len(labels) - complex_},
            "because": dict(sorted(sources.items())),
            "verdicts": {name: self._verdicts[name] for name in ("right", "over", "under", "none")},
            "left_out": {name: self._left_out[name] for name in LEFT_OUT if self._left_out[name]},
            "repeats": sum(self._seen[key] for key in self._kept if key not in self._conflicting) - len(labels),
            "conflicts": {
                "questions": len(self._conflicting),
                "runs": sum(self._seen[key] for key in self._conflicting),
                "shown": list(self._shown.values()),
            },
            "warnings": self._warnings(len(labels)),
        }

    def _warnings(self, labels: int) -> list[str]:
        told = []
        if self.consent != "text":
            told.append(
                f"journal.questions is {self.consent!r}: the journal keeps no questions, so there are no labels"
            )
        elif self._left_out["without_text"]:
            told.append(f"{self._left_out['without_text']} runs were asked while the journal kept no text of them")
        if self._left_out["beyond_the_bound"]:
            told.append(f"only the newest {self.most} labels are kept; narrow with --since, --tenant or --collection")
        if self._conflicting:
            told.append(f"{len(self._conflicting)} questions have contradicting signs and were left out")
        if self.runs and not labels and self.consent == "text":
            told.append("no run gave a label: rate answers or name the right route with SubmitFeedback")
        return told


def _without_sign(run: FinishedRun) -> str:
    """Why a run says nothing of the route that its question needed; "" where it does."""
    facts, feedback = run.facts, run.feedback
    signs = signs_of(facts, feedback)
    if feedback.correct_route is None and facts.answer is not None and facts.answer.outcome is Outcome.UNANSWERABLE:
        return "unanswerable"
    if signs:
        return ""
    standard = facts.answer is not None and facts.answer.outcome is not None and facts.chosen is Route.STANDARD
    return "unconfirmed" if standard else "no_sign"


def _told(text: str, about: dict[str, Any], signs: Sequence[Sign]) -> dict[str, Any]:
    return {
        "question": text,
        "request_id": about["request_id"],
        "tenant": about["tenant"],
        "signs": [{"needed": sign.needed.value, "source": sign.source} for sign in signs],
    }
