"""Routes of contracts as the server calls them: a legacy request becomes a question, events become legacy bytes."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from router.asked import asked_text
from router.http.asking import Search, followed, found, looked_up, run_to_end, streamed, to_checked, to_search
from router.http.contract.asks import in_legacy_words, inputs_of, of_input, read_request, sources_of, wants_stream
from router.http.contract.frames import (
    ContractFrames,
    citation_items,
    common,
    error_values,
    final,
    header_list,
    passage_items,
)
from router.http.contract.template import Values, render, render_text
from router.http.wire import JSON, read_json, to_json_bytes, while_present
from standard.domain.errors import InvalidInput, PointsmanError
from standard.screening import presentable
from standard.tasks import task_group
from standard.unicode import encodable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from pointsman.v1 import gateway_pb2

    from router.http.asking import Call, HttpParts
    from router.http.contract.compiled import Batch, Contract, ContractRoute, Stream
    from router.http.contract.paths import Sources
    from router.http.errors import Problem
    from standard.domain.answer import Answer
    from standard.domain.passage import RetrievedPassage
    from standard.domain.question import Question

_LONGEST_NAME: Final = 100
"""Longest key that names the runs of a batch as it is, each with its number; a longer one is hashed."""
_INPUTS_AT_ONCE: Final = 4
"""Questions of one batch that are worked on at once."""
_SOURCES_SECONDS: Final = 5.0
"""Longest time that looking up an answer's sources may take."""
_log = structlog.get_logger("pointsman.http")


def handler(route: ContractRoute) -> Callable[[HttpParts, Call], Awaitable[None]]:
    """What serves a contract's route."""

    async def handle(parts: HttpParts, call: Call) -> None:
        if route.batch is not None:
            await _batch(parts, call, route, route.batch)
            return
        sources = sources_of(call)
        request = read_request(route, sources)
        if route.search:
            await _search(parts, call, route, request, sources)
            return
        try:
            question = to_checked(parts, call, request)
        except InvalidInput as error:
            raise in_legacy_words(error, route.asks) from None
        if not question.request_id:
            question = replace(question, request_id=uuid.uuid4().hex)
        stream = route.stream
        if stream is not None and wants_stream(stream, sources):
            await _stream(parts, call, route, stream, question, sources)
        else:
            await _whole(parts, call, route, question, sources)

    return handle


async def _search(
    parts: HttpParts, call: Call, route: ContractRoute, request: gateway_pb2.AnswerRequest, sources: Sources
) -> None:
    filter_ = request.filter if request.HasField("filter") else None
    try:
        search = to_search(parts, call, request.question, request.collection, request.top_k, filter_)
    except InvalidInput as error:
        raise in_legacy_words(error, route.asks) from None
    passages = await found(parts, call, [search])
    run_id = uuid.uuid4().hex
    named = common(run_id, request.question, request.session_id)
    await _send(call, route, Values(named, {"passages": passage_items(passages)}, sources), run_id)


async def _batch(parts: HttpParts, call: Call, route: ContractRoute, batch: Batch) -> None:
    """Each input as a question of its own, some at once; where one fails the whole fails, and the others end."""
    gate, tenant = parts.gate, parts.identify(call.request).tenant
    try:
        call = replace(call, body=await read_json(call.request, parts.settings.http))
        sources = sources_of(call)
        inputs = [*inputs_of(batch, sources)]
        most = None if gate is None else gate.most(tenant)
        if most is not None and len(inputs) > most:
            problem = f"has {len(inputs)} items, each a request; the tenant's limit is {most} a minute: send fewer"
            raise _BeyondMost(batch.path.text, problem)
        questions = _questions(parts, call, route, batch, inputs)
    except _BeyondMost:
        raise
    except PointsmanError:
        if gate is not None:
            await gate.stands_for(tenant, 1)
        raise
    if gate is not None:
        await gate.stands_for(tenant, max(1, len(questions)))
    places = asyncio.Semaphore(_INPUTS_AT_ONCE)

    async def one(question: Question, each: Sources) -> Values:
        async with places, _looking(parts, route, question) as listed:
            answer = await run_to_end(parts, question, lambda _: listed.begin())
            items = passage_items(await listed.passages())
        return _answer_values(question, answer, items, each)

    async with while_present(call.request.receive, call.reply), task_group() as group:
        tasks = [group.create_task(one(*pair)) for pair in zip(questions, inputs, strict=True)]
    run_id = questions[0].request_id if questions else uuid.uuid4().hex
    values = Values(common(run_id, "", ""), {"answers": [task.result() for task in tasks]}, sources)
    await _send(call, route, values, run_id)


class _BeyondMost(InvalidInput):
    """A batch with more inputs than its tenant may ever have at once: nothing is counted for it."""


def _questions(
    parts: HttpParts, call: Call, route: ContractRoute, batch: Batch, inputs: Sequence[Sources]
) -> list[Question]:
    """The questions of a batch. Raises InvalidInput, its field named as in the whole request."""
    questions = []
    named = call.request.headers.get("idempotency-key", "")
    if len(named) > _LONGEST_NAME:
        named = hashlib.sha256(named.encode()).hexdigest()
    for number, each in enumerate(inputs, start=1):
        try:
            request = read_request(route, each)
            request.request_id = request.request_id or (f"{named}-{number}" if named else uuid.uuid4().hex)
            questions.append(to_checked(parts, call, request))
        except InvalidInput as error:
            legacy = in_legacy_words(error, route.asks)
            raise InvalidInput(of_input(legacy.field, batch, number - 1), legacy.problem) from None
    return questions


def _answer_values(question: Question, answer: Answer, items: list[dict[str, object]], sources: Sources) -> Values:
    named = common(question.request_id, question.text.raw, question.session_id) | final(answer)
    return Values(named, {"passages": items, "citations": citation_items(answer.citations, items)}, sources)


async def _whole(parts: HttpParts, call: Call, route: ContractRoute, question: Question, sources: Sources) -> None:
    async with _looking(parts, route, question) as listed:
        answer = await followed(parts, call, question, lambda _: listed.begin())
        items = passage_items(await listed.passages())
    await _send(call, route, _answer_values(question, answer, items, sources), question.request_id)


async def _send(call: Call, route: ContractRoute, values: Values, run_id: str) -> None:
    body = route.unary
    assert body is not None  # noqa: S101 - the schema has one where nothing is streamed
    if body.is_json:
        rendered = to_json_bytes(render(body.template, values))
    else:
        rendered = encodable(render_text(body.template, values)).encode()
    await call.reply.whole(
        body.status, rendered, body.content_type, [*call.headers(run_id), *header_list(body.headers, values)]
    )


async def _stream(
    parts: HttpParts, call: Call, route: ContractRoute, stream: Stream, question: Question, sources: Sources
) -> None:
    async with _looking(parts, route, question) as listed:
        framing = ContractFrames(stream, question, sources)

        async def before() -> bytes:
            listed.begin()
            return framing.start(passage_items(await listed.passages()))

        values = Values(framing.named, {}, sources)
        headers = header_list(stream.headers, values)
        await streamed(parts, call, question, framing, status=stream.status, headers=headers, before=before)


class _Listed:
    """Passages that a legacy response lists as its sources, looked up while the answer is made.

    An answer's events name only what it cites, and without text or metadata. The look begins with the run's first
    event: the run has its place by then, and what it found is warm. An answer is never lost for its list of sources.
    Where the route's templates list none (`wanted` is false) nothing is looked up.
    """

    def __init__(self, parts: HttpParts, question: Question, *, wanted: bool) -> None:
        self._parts = parts
        self._wanted = wanted
        self._search = Search(question.scope, asked_text(question), question.top_k)
        self._deadline = question.deadline
        self._looking: asyncio.Task[Sequence[RetrievedPassage]] | None = None

    def begin(self) -> None:
        """Begin to look, once."""
        if self._wanted and self._looking is None:
            self._looking = asyncio.create_task(self._look())

    async def passages(self) -> Sequence[RetrievedPassage]:
        """What was found; nothing where the look failed or never began."""
        return () if self._looking is None else await self._looking

    async def _look(self) -> Sequence[RetrievedPassage]:
        until = asyncio.get_running_loop().time() + _SOURCES_SECONDS
        try:
            async with asyncio.timeout_at(until if self._deadline is None else min(until, self._deadline)):
                return presentable(await looked_up(self._parts, self._search))
        except (PointsmanError, TimeoutError) as error:
            _log.warning("an answer lists no sources: looking them up failed", reason=repr(error))
        except Exception:  # noqa: BLE001 - an answer that was paid for is worth more than its list of sources
            _log.exception("an answer lists no sources: looking them up failed")
        return ()

    async def close(self) -> None:
        """End a look that nobody waits for any more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])


@asynccontextmanager
async def _looking(parts: HttpParts, route: ContractRoute, question: Question) -> AsyncIterator[_Listed]:
    listed = _Listed(parts, question, wanted=route.wants_passages)
    try:
        yield listed
    finally:
        await listed.close()


def failer(contract: Contract) -> Callable[[Call, Problem], Awaitable[None]]:
    """What tells of errors in a contract's shape."""

    async def fail(call: Call, problem: Problem) -> None:
        rule = next(rule for rule in contract.errors if not rule.when or problem.status in rule.when)
        status = problem.status if rule.status is None else rule.status
        named = common(call.request_id, "", "") | error_values(replace(problem, status=status))
        values = Values(named, {}, sources_of(call))
        headers = [*problem.headers, *header_list(rule.headers, values)]
        if call.request_id:
            headers.append(("x-request-id", call.request_id))
        await call.reply.whole(status, to_json_bytes(render(rule.template, values)), JSON, headers)

    return fail
