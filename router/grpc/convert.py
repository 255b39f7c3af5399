"""Domain types as wire messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pointsman.v1 import gateway_pb2

from standard.domain import event as events
from standard.domain.answer import AnswerSource, DecisionReason, Outcome, StopReason
from standard.domain.question import Route
from standard.unicode import encodable as text

if TYPE_CHECKING:
    from standard.domain.answer import Answer, Citation, Decision

ROUTES: Final[dict[Route, gateway_pb2.Route.ValueType]] = {
    route: gateway_pb2.Route.Value(f"ROUTE_{route.name}") for route in Route
}
SOURCES: Final[dict[AnswerSource, gateway_pb2.AnswerSource.ValueType]] = {
    source: gateway_pb2.AnswerSource.Value(f"ANSWER_SOURCE_{source.name}") for source in AnswerSource
}
OUTCOMES: Final[dict[Outcome, gateway_pb2.Outcome.ValueType]] = {
    outcome: gateway_pb2.Outcome.Value(f"OUTCOME_{outcome.name}") for outcome in Outcome
}
STOP_REASONS: Final[dict[StopReason, gateway_pb2.StopReason.ValueType]] = {
    reason: gateway_pb2.StopReason.Value(f"STOP_REASON_{reason.name}") for reason in StopReason
}
DECISION_REASONS: Final[dict[DecisionReason, gateway_pb2.DecisionReason.ValueType]] = {
    reason: gateway_pb2.DecisionReason.Value(f"DECISION_REASON_{reason.name}") for reason in DecisionReason
}


def decision_message(decision: Decision) -> gateway_pb2.Decision:
    """A decision."""
    return gateway_pb2.Decision(
        route=ROUTES[decision.route],
        complex_probability=decision.complex_probability,
        text_probability=decision.text_probability,
        evidence_probability=decision.evidence_probability,
        threshold=decision.threshold,
        reason=DECISION_REASONS[decision.reason],
        model_version=decision.model_version,
    )


def citation_message(citation: Citation) -> gateway_pb2.Citation:
    """A citation."""
    return gateway_pb2.Citation(
        passage_id=citation.passage_id,
        document_id=citation.document_id,
        title=text(citation.title),
        uri=text(citation.uri),
        quote=text(citation.quote),
        answer_start=citation.answer_start,
        answer_end=citation.answer_end,
        passage_start=citation.passage_start,
        passage_end=citation.passage_end,
    )


def answer_message(answer: Answer) -> gateway_pb2.AnswerResponse:
    """A whole answer."""
    usage, timings = answer.usage, answer.timings
    message = gateway_pb2.AnswerResponse(
        request_id=answer.request_id,
        answer=text(answer.text),
        answer_source=SOURCES[answer.source],
        route=ROUTES[answer.route],
        decision=decision_message(answer.decision),
        citations=[citation_message(citation) for citation in answer.citations],
        clarification=text(answer.clarification),
        notices=answer.notices,
        steps=answer.steps,
        usage=gateway_pb2.Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            retrieved_tokens=usage.retrieved_tokens,
            llm_calls=usage.llm_calls,
            cost_usd=usage.cost_usd,
        ),
        timings=gateway_pb2.Timings(
            embed_seconds=timings.embed_seconds,
            decide_seconds=timings.decide_seconds,
            retrieve_seconds=timings.retrieve_seconds,
            first_token_seconds=timings.first_token_seconds,
            total_seconds=timings.total_seconds,
        ),
    )
    if answer.outcome is not None:
        message.outcome = OUTCOMES[answer.outcome]
    if answer.stop_reason is not None:
        message.stop_reason = STOP_REASONS[answer.stop_reason]
    if not message.answer and answer.outcome is None:
        message.answer_source = gateway_pb2.ANSWER_SOURCE_UNSPECIFIED
    return message


def event_message(event: events.Event) -> gateway_pb2.Event:
    """An event."""
    message = gateway_pb2.Event(sequence=event.sequence, text=text(event.text))
    match event.body:
        case events.TokenEmitted(text=piece):
            message.token.text = text(piece)
        case events.DecisionMade(decision=decision):
            message.decision.CopyFrom(decision_message(decision))
        case events.PlanMade(sub_questions=parts, prompt_tokens=tokens):
            message.plan.SetInParent()
            message.plan.prompt_tokens = tokens
            for part in parts:
                message.plan.sub_questions.add(id=part.id, question=text(part.question), depends_on=part.depends_on)
        case events.QueryIssued() as query:
            message.query.step, message.query.action = query.step, query.action
            message.query.query, message.query.reason = text(query.query), text(query.reason)
            message.query.prompt_tokens = query.prompt_tokens
        case events.PassagesFound() as found:
            _passages(message.passages, found)
        case events.SufficiencyJudged() as judged:
            message.sufficiency.step, message.sufficiency.score = judged.step, judged.score
            message.sufficiency.sufficient = judged.sufficient
            message.sufficiency.reason, message.sufficiency.prompt_tokens = text(judged.reason), judged.prompt_tokens
            message.sufficiency.known.extend(map(text, judged.known))
            message.sufficiency.missing.extend(map(text, judged.missing))
            message.sufficiency.contradictions.extend(map(text, judged.contradictions))
        case events.GuardTripped() as trip:
            message.guard.step, message.guard.guard = trip.step, trip.guard
            message.guard.prompt_tokens, message.guard.query = trip.prompt_tokens, text(trip.query)
            message.guard.action, message.guard.reason, message.guard.stops = trip.action, text(trip.reason), trip.stops
        case events.ContextCompressed() as compressed:
            message.compression.step = compressed.step
            message.compression.prompt_tokens = compressed.prompt_tokens
            message.compression.tokens_before = compressed.tokens_before
            message.compression.tokens_after = compressed.tokens_after
            message.compression.passage_ids.extend(compressed.passage_ids)
        case events.Escalated() as escalated:
            message.escalation.from_route = ROUTES[escalated.from_route]
            message.escalation.to_route = ROUTES[escalated.to_route]
            message.escalation.reason = escalated.reason
        case events.ClarificationAsked(question=question, options=options):
            message.clarification.question = text(question)
            message.clarification.options.extend(map(text, options))
        case events.CitationMade(index=index, citation=citation):
            message.citation.index = index
            message.citation.citation.CopyFrom(citation_message(citation))
        case events.Completed(answer=answer):
            message.completed.CopyFrom(answer_message(answer))
        case _:
            _rare(message, event.body)
    return message


def _rare(message: gateway_pb2.Event, body: events.EventBody) -> None:
    """Fill in what goes wrong: a dependency away, passages with findings, a blocked answer."""
    match body:
        case events.Degraded(dependency=dependency, notice=notice):
            message.degraded.dependency, message.degraded.notice = dependency, notice
        case events.OutputBlocked(reason=reason):
            message.blocked.reason = reason
        case events.PassagesScreened(findings=findings):
            for finding in findings:
                message.screened.findings.add(
                    passage_id=finding.passage_id,
                    verdict=finding.verdict,
                    techniques=finding.techniques,
                    rules_version=finding.rules_version,
                )
        case _:
            raise TypeError(f"no message for {type(body).__name__}")


def _passages(message: gateway_pb2.PassagesEvent, found: events.PassagesFound) -> None:
    message.step, message.duplicates = found.step, found.duplicates
    for passage in found.passages:
        message.passages.add(
            passage_id=passage.passage_id,
            document_id=passage.document_id,
            title=text(passage.title),
            uri=text(passage.uri),
            score=passage.score,
            snippet=text(passage.snippet),
            verdict=passage.verdict,
        )
