"""Events as JSON and back, and what consent leaves of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from standard.domain import event as events
from standard.domain.answer import Answer, Citation
from standard.unicode import encodable

if TYPE_CHECKING:
    from standard.domain.event import EventBody

Consent: TypeAlias = Literal["text", "hash", "nothing"]
"""What is kept of questions, queries and answers: their text, a hash of it, or nothing."""

_KINDS: dict[str, type[Any]] = {
    "decision": events.DecisionMade,
    "plan": events.PlanMade,
    "query": events.QueryIssued,
    "passages": events.PassagesFound,
    "screened": events.PassagesScreened,
    "sufficiency": events.SufficiencyJudged,
    "guard": events.GuardTripped,
    "compression": events.ContextCompressed,
    "escalation": events.Escalated,
    "clarification": events.ClarificationAsked,
    "token": events.TokenEmitted,
    "citation": events.CitationMade,
    "degraded": events.Degraded,
    "blocked": events.OutputBlocked,
    "completed": events.Completed,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


class EventCodec:
    """Encodes event bodies; building the validators takes some milliseconds, so make one and keep it."""

    def __init__(self) -> None:
        self._adapters: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for name, kind in _KINDS.items()}

    def kind(self, body: EventBody) -> str:
        """The name of a body's kind, as in the oneof of the wire."""
        return _NAMES[type(body)]

    def encode(self, body: EventBody) -> str:
        """A body as JSON text; lone surrogates, which have no UTF-8 and which a model can send, become `?`."""
        adapter = self._adapters[_NAMES[type(body)]]
        try:
            return adapter.dump_json(body).decode()
        except PydanticSerializationError:
            return encodable(json.dumps(adapter.dump_python(body, mode="json"), ensure_ascii=False))

    def decode(self, kind: str, value: object) -> EventBody:
        """A body from its kind and its JSON value; ValueError where they do not fit."""
        adapter = self._adapters.get(kind)
        if adapter is None:
            raise ValueError(f"unknown kind of event: {kind!r}")
        body: EventBody = adapter.validate_python(value)
        return body


def kept(text: str, consent: Consent) -> str:
    """What consent leaves of a text: itself, `sha256:` and 64 hex digits, or nothing."""
    if consent == "text" or not text:
        return text
    if consent == "hash":
        return "sha256:" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    return ""


def redact(body: EventBody, consent: Consent) -> EventBody:
    """A body with every text that tells of the question or the answer reduced to what consent leaves."""
    if consent == "text":
        return body
    match body:
        case events.QueryIssued():
            return replace(body, query=kept(body.query, consent), reason="")
        case events.PlanMade():
            parts = tuple(replace(part, question=kept(part.question, consent)) for part in body.sub_questions)
            return replace(body, sub_questions=parts)
        case events.SufficiencyJudged():
            return replace(body, known=(), missing=(), contradictions=(), reason="")
        case events.ClarificationAsked():
            return replace(body, question=kept(body.question, consent), options=())
        case events.GuardTripped():
            return replace(body, reason=kept(body.reason, consent), query=kept(body.query, consent))
        case events.TokenEmitted():
            return replace(body, text="")
        case events.PassagesFound():
            return replace(body, passages=tuple(replace(found, snippet="") for found in body.passages))
        case events.CitationMade():
            return replace(body, citation=_bare(body.citation))
        case events.Completed():
            return replace(body, answer=_bare_answer(body.answer, consent))
        case _:
            return body


def _bare(citation: Citation) -> Citation:
    return replace(citation, quote="")


def _bare_answer(answer: Answer, consent: Consent) -> Answer:
    return replace(
        answer,
        text=kept(answer.text, consent),
        clarification=kept(answer.clarification, consent),
        citations=tuple(_bare(citation) for citation in answer.citations),
    )
