"""What every façade shares: who asks, which question that makes, and the way of an answer back to them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from router.grpc.validate import answer_deadline, collection_name, question_text, to_filter, to_question, to_top_k
from router.http.errors import to_problem
from router.http.wire import ClientGone, while_present
from standard.domain.errors import DeadlineExceeded, FailedPrecondition
from standard.domain.event import Completed
from standard.domain.passage import Scope
from standard.screening import presentable
from standard.tasks import task_group

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from pointsman.v1 import gateway_pb2
    from starlette.requests import Request

    from router.access.auth import Gate
    from router.access.identity import Identity
    from router.gateway import Gateway
    from router.http.errors import Problem
    from router.http.wire import Reply
    from router.settings import Settings
    from standard.domain.answer import Answer
    from standard.domain.event import Event
    from standard.domain.passage import RetrievedPassage, Retriever
    from standard.domain.question import Question


_SEARCHES_AT_ONCE: Final = 3


@dataclass(frozen=True, slots=True)
class HttpParts:
    """What the façades work with. `ready` tells each dependency's state and whether the whole can serve."""

    gateway: Gateway
    retriever: Retriever
    embed: Callable[[str], Awaitable[NDArray[np.float32]]]
    settings: Settings
    identify: Callable[[Request], Identity]
    ready: Callable[[], Awaitable[tuple[bool, Mapping[str, bool]]]]
    gate: Gate | None = None
    """What every call but those of health passes first."""


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP call: the request, its JSON, and the reply that is due."""

    request: Request
    body: dict[str, Any]
    reply: Reply
    request_id: str
    """The caller's X-Request-Id, or empty."""

    def headers(self, run_id: str) -> list[tuple[str, str]]:
        """The headers that name this call: the caller's own id where it brought one, else the run's."""
        return [("x-request-id", self.request_id or run_id), ("x-pointsman-run", run_id)]


class Framing(Protocol):
    """How a façade writes events of a run; each method's bytes leave at once, b"" is nothing."""

    @property
    def content_type(self) -> str:
        """The stream's media type."""
        ...

    @property
    def heartbeat(self) -> bytes:
        """What a silent line carries."""
        ...

    def event(self, event: Event) -> bytes:
        """An event's bytes."""
        ...

    def failure(self, problem: Problem) -> bytes:
        """The end of a stream that broke."""
        ...


@dataclass(frozen=True, slots=True)
class Replying:
    """The user's answer to what the run `request_id` asked back with the event `after`; it goes on from there."""

    request_id: str
    reply: str
    after: int
    identity: Identity
    deadline: float | None


Work: TypeAlias = "Question | Replying"


def events_of(parts: HttpParts, work: Work) -> AsyncGenerator[Event]:
    """The events of a question's run, or of what follows a reply."""
    if not isinstance(work, Replying):
        return parts.gateway.stream(work)
    identity = work.identity
    return parts.gateway.resume(
        Scope(tenant=identity.tenant, groups=identity.groups),
        work.request_id,
        work.after,
        reply=work.reply,
        deadline=work.deadline,
        collections=identity.collections,
    )


async def replying(
    parts: HttpParts, call: Call, text: str, *, run: str = "", session_id: str = "", said: str = ""
) -> Replying | None:
    """The reply that `text` is to a run that asked back, None where none waits for it; see Gateway.asked_back."""
    identity = parts.identify(call.request)
    reply = question_text(text, "input", parts.settings.limits).raw
    found = await parts.gateway.asked_back(
        Scope(tenant=identity.tenant, groups=identity.groups),
        reply,
        request_id=run,
        session_id=session_id,
        said=said,
        collections=identity.collections,
    )
    if found is None:
        return None
    server = parts.settings.server
    deadline = answer_deadline(None, server.default_timeout_seconds, server.deadline_reserve_seconds)
    return Replying(found[0], reply, found[1], identity, deadline)


def to_checked(parts: HttpParts, call: Call, request: gateway_pb2.AnswerRequest) -> Question:
    """The question of a request, checked exactly as over gRPC; the run is named by Idempotency-Key where one came."""
    if not request.request_id:
        request.request_id = call.request.headers.get("idempotency-key", "")
    server = parts.settings.server
    deadline = answer_deadline(None, server.default_timeout_seconds, server.deadline_reserve_seconds)
    return to_question(request, parts.identify(call.request), parts.settings.limits, deadline)


async def answered(parts: HttpParts, call: Call, work: Work) -> Answer:
    """The whole answer; the work stops when the client goes away."""
    return await followed(parts, call, work, lambda _: None)


async def collected(parts: HttpParts, call: Call, work: Work) -> tuple[list[Event], Answer]:
    """All events of a run and its answer."""
    events: list[Event] = []
    answer = await followed(parts, call, work, events.append)
    return events, answer


async def followed(parts: HttpParts, call: Call, work: Work, see: Callable[[Event], None]) -> Answer:
    """The whole answer of a run, each of whose events is shown to `see` as it comes."""
    async with while_present(call.request.receive, call.reply):
        return await run_to_end(parts, work, see)


async def run_to_end(parts: HttpParts, work: Work, see: Callable[[Event], None]) -> Answer:
    """The whole answer of a run, whoever waits for it: `followed` without a look at the client."""
    answer: Answer | None = None
    async with aclosing(events_of(parts, work)) as events:
        async for event in events:
            see(event)
            if isinstance(event.body, Completed):
                answer = event.body.answer
    if answer is None:
        raise FailedPrecondition("the run ended without an answer")
    return answer


async def streamed(
    parts: HttpParts,
    call: Call,
    work: Work,
    framing: Framing,
    *,
    status: int = 200,
    headers: Iterable[tuple[str, str]] = (),
    before: Callable[[], Awaitable[bytes]] | None = None,
) -> None:
    """Stream a run; a question has its id.

    The head leaves with the first event, so that what fails before it is an error with a status; `before` is awaited
    then, and its bytes come first.
    """
    reply = call.reply
    async with (
        while_present(call.request.receive, reply),
        reply.kept_alive(framing.heartbeat),
        aclosing(events_of(parts, work)) as events,
    ):
        try:
            async for event in events:
                if not reply.started:
                    opening = await before() if before is not None else b""
                    await reply.open(status, framing.content_type, [*call.headers(work.request_id), *headers])
                    await reply.piece(opening)
                await reply.piece(framing.event(event))
        except ClientGone:
            raise
        except Exception as error:
            if not reply.started:
                raise
            await reply.piece(framing.failure(to_problem(error)))
        await reply.close()


@dataclass(frozen=True, slots=True)
class Search:
    """A search without an answer: what is looked for, checked, and where."""

    scope: Scope
    text: str
    top_k: int


def to_search(
    parts: HttpParts, call: Call, text: str, collection: str, top_k: int, filter_: gateway_pb2.Filter | None
) -> Search:
    """Check a search as SearchPassages does."""
    identity = parts.identify(call.request)
    scope = Scope(
        tenant=identity.tenant,
        collection=identity.admitted(collection_name(collection)),
        filter=to_filter(filter_) if filter_ is not None else None,
        groups=identity.groups,
    )
    return Search(scope, question_text(text, "query", parts.settings.limits).raw, to_top_k(top_k))


async def found(parts: HttpParts, call: Call, searches: Sequence[Search]) -> list[RetrievedPassage]:
    """Passages of several searches as they may be handed out, each once with its best score, best first.

    All of them together hold one place among the questions that are worked on at once, and end within
    server.default_timeout_seconds. Raises Overloaded, DeadlineExceeded.
    """
    seconds = parts.settings.server.default_timeout_seconds
    places = asyncio.Semaphore(_SEARCHES_AT_ONCE)

    async def look(search: Search) -> Sequence[RetrievedPassage]:
        async with places:
            return await looked_up(parts, search)

    try:
        async with (
            while_present(call.request.receive, call.reply),
            asyncio.timeout(seconds),
            parts.gateway.place(),
            task_group() as group,
        ):
            looking = [group.create_task(look(search)) for search in searches]
    except TimeoutError:
        raise DeadlineExceeded(f"the search took longer than {seconds:g} s") from None
    best: dict[str, RetrievedPassage] = {}
    for task in looking:
        for passage in task.result():
            known = best.get(passage.passage.passage_id)
            if known is None or known.score < passage.score:
                best[passage.passage.passage_id] = passage
    return list(presentable(sorted(best.values(), key=lambda passage: -passage.score)))


async def looked_up(parts: HttpParts, search: Search) -> Sequence[RetrievedPassage]:
    """What a search brings, not screened."""
    vector = await parts.embed(search.text)
    return (await parts.retriever.search(search.scope, search.text, vector, k=search.top_k)).passages
