"""The typed client of the gateway. Needs grpcio and protobuf alone.

    async with Pointsman("localhost:50051") as pointsman:
        answer = await pointsman.answer("Who signs for the spare pump?")
        print(answer.answer, [citation.uri for citation in answer.citations])

        async for event in pointsman.stream("Compare the two winter timetables."):
            print(event.sequence, event.text)

Every call has a deadline. Questions and reads that a server could not take or finish are retried by the published
policy (`RETRY_POLICY`); a call with a request_id (this client always sends one) is safe to repeat, since the gateway
attaches a repeated id to the run that it began. Writes to corpus and policy are not repeated by themselves.
Errors are `grpc.aio.AioRpcError`, with google.rpc details in the trailing metadata.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Final, Self

import grpc
from grpc import aio

from pointsman.v1 import admin_pb2_grpc, corpus_pb2, corpus_pb2_grpc, gateway_pb2, gateway_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
    from types import TracebackType

    from pointsman.v1.admin_pb2_grpc import AdminServiceAsyncStub
    from pointsman.v1.corpus_pb2_grpc import CorpusServiceAsyncStub
    from pointsman.v1.gateway_pb2_grpc import GatewayServiceAsyncStub

RETRY_POLICY: Final[Mapping[str, object]] = {
    "maxAttempts": 5,
    "initialBackoff": "0.1s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2,
    # A server that stops resets the calls that it had not taken up yet, or not finished in time: CANCELLED. A client's
    # own cancellation is never repeated.
    "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
}
"""What a client may repeat, and how patiently; other languages can put it in their service config as it is."""

_REPEATABLE: Final = (
    ("GatewayService", "Answer"),
    ("GatewayService", "StreamAnswer"),
    ("GatewayService", "ResumeAnswer"),
    ("GatewayService", "Classify"),
    ("CorpusService", "ListCollections"),
    ("CorpusService", "GetCollection"),
    ("CorpusService", "ListDocuments"),
    ("CorpusService", "GetDocument"),
    ("CorpusService", "SearchPassages"),
    ("CorpusService", "GetReembedding"),
    ("CorpusService", "CompareReembedding"),
    ("AdminService", "GetRoutingPolicy"),
    ("AdminService", "GetTrace"),
)
"""Reads, and calls that a request_id makes safe; a write that may have happened is the caller's to repeat."""

SERVICE_CONFIG: Final[str] = json.dumps(
    {
        "loadBalancingConfig": [{"round_robin": {}}],
        "methodConfig": [
            {
                "name": [{"service": f"pointsman.v1.{service}", "method": method} for service, method in _REPEATABLE],
                "retryPolicy": RETRY_POLICY,
            }
        ],
        "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
    }
)
"""gRPC service config with the retry policy; throttling keeps retries near a tenth of the traffic in an outage."""

DEFAULT_TIMEOUT_SECONDS: Final = 120.0
_AFTER_BUDGET_SECONDS: Final = 5.0
"""For the way there and back, so that a budget ends an answer before the deadline ends the call."""
_MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024


def new_request_id() -> str:
    """A fresh request id: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def question(
    text: str,
    *,
    route: gateway_pb2.Route.ValueType = gateway_pb2.ROUTE_UNSPECIFIED,
    collection: str = "",
    threshold: float | None = None,
    top_k: int = 0,
    history: Sequence[tuple[str, str]] = (),
    filter: gateway_pb2.Filter | None = None,  # noqa: A002 - the field's name on the wire
    budget: gateway_pb2.Budget | None = None,
    session_id: str = "",
    request_id: str = "",
    dry_run: bool = False,
) -> gateway_pb2.AnswerRequest:
    """Build a request; the arguments are the fields of AnswerRequest, `history` as (role, text) pairs, oldest first."""
    return gateway_pb2.AnswerRequest(
        question=text,
        route=route,
        collection=collection,
        threshold=threshold,
        top_k=top_k,
        history=[gateway_pb2.Turn(role=role, text=turn) for role, turn in history],
        filter=filter,
        budget=budget,
        session_id=session_id,
        request_id=request_id or new_request_id(),
        dry_run=dry_run,
    )


class Pointsman:
    """One channel to a gateway; use it as an async context manager, share it between tasks.

    `target` is `HOST:PORT` or any gRPC target. `credentials` None = plaintext; `token` is sent as a bearer token.
    `timeout_seconds` is the deadline of every call unless the call says otherwise, or its budget allows more time.
    """

    def __init__(
        self,
        target: str,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        token: str = "",
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        options = [
            ("grpc.service_config", SERVICE_CONFIG),
            ("grpc.enable_retries", 1),
            ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
        ]
        if credentials is None:
            self._channel = aio.insecure_channel(target, options=options)
        else:
            self._channel = aio.secure_channel(target, credentials, options=options)
        self._metadata: tuple[tuple[str, str], ...] = (("authorization", f"Bearer {token}"),) if token else ()
        self._timeout = timeout_seconds
        self.gateway: GatewayServiceAsyncStub = gateway_pb2_grpc.GatewayServiceStub(self._channel)
        self.corpus: CorpusServiceAsyncStub = corpus_pb2_grpc.CorpusServiceStub(self._channel)
        self.admin: AdminServiceAsyncStub = admin_pb2_grpc.AdminServiceStub(self._channel)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What calls of the bare stubs (`gateway`, `corpus`, `admin`) have to bring as `metadata`: the token."""
        return self._metadata

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the channel; calls in flight are cancelled."""
        await self._channel.close()

    async def answer(
        self, request: str | gateway_pb2.AnswerRequest, *, timeout_seconds: float | None = None
    ) -> gateway_pb2.AnswerResponse:
        """Ask and wait for the whole answer."""
        asked = _request(request)
        return await self.gateway.Answer(
            asked, timeout=timeout_seconds or time_allowed(asked, self._timeout), metadata=self._metadata
        )

    async def stream(
        self, request: str | gateway_pb2.AnswerRequest, *, timeout_seconds: float | None = None
    ) -> AsyncIterator[gateway_pb2.Event]:
        """Ask and yield events as they happen; the last one's `completed` is the whole answer.

        Leaving the loop early cancels the call and with it the work on the server.
        """
        asked = _request(request)
        call = self.gateway.StreamAnswer(
            gateway_pb2.StreamAnswerRequest(request=asked),
            timeout=timeout_seconds or time_allowed(asked, self._timeout),
            metadata=self._metadata,
        )
        try:
            async for response in call:
                yield response.event
        finally:
            call.cancel()

    async def resume(
        self, request_id: str, *, after_sequence: int = 0, reply: str = "", timeout_seconds: float | None = None
    ) -> AsyncIterator[gateway_pb2.Event]:
        """Re-attach to a run after an event, or continue one that waits with the user's `reply`."""
        call = self.gateway.ResumeAnswer(
            gateway_pb2.ResumeAnswerRequest(request_id=request_id, after_sequence=after_sequence, input=reply),
            timeout=timeout_seconds or self._timeout,
            metadata=self._metadata,
        )
        try:
            async for response in call:
                yield response.event
        finally:
            call.cancel()

    async def classify(
        self, text: str, *, explain: bool = False, collection: str = "", timeout_seconds: float | None = None
    ) -> gateway_pb2.ClassifyResponse:
        """Say how complex a question looks, from its text alone or with a first look into a collection."""
        return await self.gateway.Classify(
            gateway_pb2.ClassifyRequest(question=text, explain=explain, collection=collection),
            timeout=timeout_seconds or self._timeout,
            metadata=self._metadata,
        )

    async def feedback(
        self,
        request_id: str,
        *,
        rating: float | None = None,
        correct_route: gateway_pb2.Route.ValueType = gateway_pb2.ROUTE_UNSPECIFIED,
        comment: str = "",
    ) -> None:
        """Tell how good an answer was (-1 to 1), and which route it should have taken."""
        await self.gateway.SubmitFeedback(
            gateway_pb2.SubmitFeedbackRequest(
                request_id=request_id, rating=rating, correct_route=correct_route, comment=comment
            ),
            timeout=self._timeout,
            metadata=self._metadata,
        )

    async def ingest(
        self,
        documents: Iterable[corpus_pb2.Document] | AsyncIterable[corpus_pb2.Document],
        *,
        collection: str = "",
        prune: bool = False,
        timeout_seconds: float = 3600.0,
    ) -> corpus_pb2.IngestDocumentsResponse:
        """Send documents; unchanged ones are skipped, changed ones replaced, bad ones reported."""

        async def messages() -> AsyncIterator[corpus_pb2.IngestDocumentsRequest]:
            header = corpus_pb2.IngestDocumentsRequest.Header(collection=collection, prune=prune)
            yield corpus_pb2.IngestDocumentsRequest(header=header)
            if hasattr(documents, "__aiter__"):
                async for document in documents:
                    yield corpus_pb2.IngestDocumentsRequest(document=document)
            else:
                for document in documents:
                    yield corpus_pb2.IngestDocumentsRequest(document=document)

        return await self.corpus.IngestDocuments(messages(), timeout=timeout_seconds, metadata=self._metadata)


def time_allowed(request: gateway_pb2.AnswerRequest, timeout_seconds: float) -> float:
    """Seconds that a call may take: `timeout_seconds`, or more where the request's own budget allows it more."""
    return max(timeout_seconds, request.budget.max_seconds + _AFTER_BUDGET_SECONDS)


def _request(request: str | gateway_pb2.AnswerRequest) -> gateway_pb2.AnswerRequest:
    if isinstance(request, str):
        return question(request)
    if request.request_id:
        return request
    named = gateway_pb2.AnswerRequest()
    named.CopyFrom(request)
    named.request_id = new_request_id()
    return named
