"""GatewayService: checked requests in, the use case, messages out."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from pointsman.v1 import gateway_pb2, gateway_pb2_grpc

from router.grpc.convert import answer_message, decision_message, event_message
from router.grpc.errors import abort
from router.grpc.validate import (
    answer_deadline,
    collection_name,
    fraction,
    identifier,
    question_text,
    to_history,
    to_question,
    to_route,
)
from standard.domain.errors import InvalidInput
from standard.domain.passage import Scope
from standard.domain.question import Question

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from router.access.identity import Identity
    from router.gateway import Gateway
    from router.grpc.calls import Context
    from router.settings import Settings

_COMMENT_CHARS = 4096


class GatewayService(gateway_pb2_grpc.GatewayServiceServicer):
    """The edge of the use case; `identify` tells who calls."""

    def __init__(self, gateway: Gateway, settings: Settings, identify: Callable[[Context], Identity]) -> None:
        self._gateway = gateway
        self._settings = settings
        self._identify = identify

    def _deadline(self, context: Context) -> float:
        server = self._settings.server
        return answer_deadline(
            context.time_remaining(), server.default_timeout_seconds, server.deadline_reserve_seconds
        )

    def _question(self, request: gateway_pb2.AnswerRequest, context: Context) -> Question:
        return to_question(request, self._identify(context), self._settings.limits, self._deadline(context))

    async def Answer(  # noqa: N802 - the RPC's name
        self, request: gateway_pb2.AnswerRequest, context: Context
    ) -> gateway_pb2.AnswerResponse:
        """Answer at once."""
        try:
            return answer_message(await self._gateway.answer(self._question(request, context)))
        except Exception as error:  # noqa: BLE001 - the edge: every error is mapped once
            await abort(context, error)

    async def StreamAnswer(  # noqa: N802
        self, request: gateway_pb2.StreamAnswerRequest, context: Context
    ) -> AsyncIterator[gateway_pb2.StreamAnswerResponse]:
        """Answer as events."""
        try:
            async with aclosing(self._gateway.stream(self._question(request.request, context))) as events:
                async for event in events:
                    yield gateway_pb2.StreamAnswerResponse(event=event_message(event))
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)

    async def ResumeAnswer(  # noqa: N802
        self, request: gateway_pb2.ResumeAnswerRequest, context: Context
    ) -> AsyncIterator[gateway_pb2.ResumeAnswerResponse]:
        """Re-attach to a run or continue it."""
        try:
            request_id = identifier(request.request_id, "request_id", required=True)
            if request.after_sequence < 0:
                raise InvalidInput("after_sequence", "is negative")
            reply = ""
            if request.input:
                reply = question_text(request.input, "input", self._settings.limits).raw
            identity = self._identify(context)
            resumed = self._gateway.resume(
                Scope(tenant=identity.tenant, groups=identity.groups),
                request_id,
                request.after_sequence,
                reply=reply,
                deadline=self._deadline(context),
                collections=identity.collections,
            )
            async with aclosing(resumed) as events:
                async for event in events:
                    yield gateway_pb2.ResumeAnswerResponse(event=event_message(event))
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)

    async def Classify(  # noqa: N802
        self, request: gateway_pb2.ClassifyRequest, context: Context
    ) -> gateway_pb2.ClassifyResponse:
        """Decide from the text alone, or with a collection from the first retrieval as well."""
        try:
            limits = self._settings.limits
            identity = self._identify(context)
            collection = identity.admitted(collection_name(request.collection)) if request.collection else ""
            question = Question(
                text=question_text(request.question, "question", limits),
                scope=Scope(tenant=identity.tenant, collection=collection, groups=identity.groups),
                history=to_history(request.history, limits),
                threshold=fraction(request.threshold, "threshold") if request.HasField("threshold") else None,
            )
            async with asyncio.timeout(self._settings.server.default_timeout_seconds):
                decision, reasons = await self._gateway.classify(
                    question, explain=request.explain, look=bool(collection)
                )
            response = gateway_pb2.ClassifyResponse(decision=decision_message(decision))
            if reasons is not None:
                response.average_log_odds = reasons.average
                response.contributions.extend(
                    gateway_pb2.ClassifyResponse.Contribution(
                        feature=part.feature, log_odds=part.log_odds, group=part.group, about=part.about
                    )
                    for part in reasons.parts
                )
            return response
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)

    async def SubmitFeedback(  # noqa: N802
        self, request: gateway_pb2.SubmitFeedbackRequest, context: Context
    ) -> gateway_pb2.SubmitFeedbackResponse:
        """Store feedback."""
        try:
            rating = request.rating if request.HasField("rating") else None
            if rating is not None and not -1.0 <= rating <= 1.0:
                raise InvalidInput("rating", f"{rating} is not within -1 to 1")
            if len(request.comment) > _COMMENT_CHARS or "\x00" in request.comment:
                raise InvalidInput("comment", f"must have at most {_COMMENT_CHARS} characters and no NUL")
            async with asyncio.timeout(self._settings.server.default_timeout_seconds):
                await self._gateway.feedback(
                    self._identify(context).tenant,
                    identifier(request.request_id, "request_id", required=True),
                    rating,
                    to_route(request.correct_route, "correct_route"),
                    request.comment,
                )
            return gateway_pb2.SubmitFeedbackResponse()
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)
