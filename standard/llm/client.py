"""The client of any OpenAI-compatible server.

One attempt is one HTTP call. A call is tried again while nothing of it was passed on and time is left; what the server
refuses to understand is left out and remembered. A server that fails again and again is left alone for a while, and
retries are a bounded share of the calls, so that a server in trouble is not asked the more for it. Waits are bounded
everywhere: for a place, for a connection, for the first token, between tokens, and over all. Cancelling a call, or
closing a stream, closes its connection at once.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self, TypeVar

from standard import semconv, spans
from standard.domain.answer import Usage
from standard.domain.errors import LlmUnavailable
from standard.llm import failure as failures
from standard.llm.capabilities import Capabilities, Feature, blamed_feature
from standard.llm.failure import Failure
from standard.llm.observer import LlmCall, SilentObserver
from standard.llm.protocol import Completion
from standard.llm.slots import Slots
from standard.llm.spans import begin_chat, end_chat
from standard.llm.tokens import estimate_tokens
from standard.llm.wire import Assembler, Malformed, estimate_input, features_of, in_effect, request_body
from standard.resilience import Breaker, RetryBudget

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    import openai
    from openai import AsyncStream

    from standard.llm.config import LlmConfig, Price
    from standard.llm.observer import LlmObserver
    from standard.llm.protocol import LlmRequest
    from standard.spans import Span

T = TypeVar("T")

# A model that ignores max_tokens is stopped at this many characters a token.
_CHARACTERS_PER_TOKEN = 24


@dataclass(slots=True)
class _Account:
    """What is known of a call while it runs."""

    request: LlmRequest
    model: str
    started: float
    deadline: float
    first_token: float | None = None
    attempts: int = 0
    usage: Usage = field(default_factory=Usage)
    estimated: bool = True
    error_kind: str = "cancelled"
    span: Span = spans.NOWHERE
    completion: Completion | None = None

    def settle(self, assembler: Assembler, price: Price | None) -> None:
        """Take over the usage the server told, or estimate it."""
        self.estimated = assembler.usage is None
        usage = assembler.usage or Usage(estimate_input(self.request), assembler.estimated_output(), llm_calls=1)
        self.usage = usage if price is None else replace(usage, cost_usd=price.cost(usage))


@dataclass(slots=True)
class _Open:
    """A stream that has begun: its first piece of text, or all of it where there is none."""

    stream: AsyncStream[object]
    assembler: Assembler
    piece: str
    ended: bool


class OpenAiLlm:
    """An `Llm` over HTTP. Close it, or use it as an async context manager.

    A stream that is left early should be closed (contextlib.aclosing), or it keeps its place and its connection until
    it is collected.
    """

    def __init__(
        self, config: LlmConfig, observer: LlmObserver | None = None, *, jitter: Callable[[], float] = random.random
    ) -> None:
        import openai  # takes half a second and 37 MB, which a gateway without a model need not pay

        self._openai = openai
        self._config = config
        self._server = failures.server_name(config.base_url)
        self._observer = observer or SilentObserver()
        self._jitter = jitter
        self._breaker = Breaker(config.breaker_failures, config.breaker_seconds, time.monotonic)
        self._budget = RetryBudget(config.retry_budget)
        self._slots = Slots(config.max_concurrency, config.max_waiting)
        self._capabilities = Capabilities(lambda: asyncio.get_running_loop().time())
        # What the SDK would take from OPENAI_* variables is set or left out here: settings are known in one place.
        left_out = ["OpenAI-Organization", "OpenAI-Project"] + ([] if config.api_key else ["Authorization"])
        self._headers: dict[str, str | openai.Omit] = {name: openai.Omit() for name in left_out}
        self._client = openai.AsyncOpenAI(
            base_url=config.base_url,
            api_key=config.api_key or "none",
            max_retries=0,
            timeout=openai.Timeout(None, connect=config.connect_seconds),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close idle connections; calls under way fail."""
        await self._client.close()

    def count_tokens(self, text: str) -> int:
        """Estimate the tokens of `text`, never far below what the server would bill."""
        return estimate_tokens(text)

    def missing_features(self, model: str) -> frozenset[Feature]:
        """What calls to this model do without, as learned from the server's refusals. For `pointsman doctor`."""
        return self._capabilities.missing(model)

    async def list_models(self, timeout_seconds: float = 5.0) -> tuple[str, ...]:
        """Ids of the models the server says it has: a cheap sign of life. Raises LlmUnavailable."""
        body = await self._attempt(
            _within(timeout_seconds, self._client.get("/models", cast_to=object, options={"headers": self._headers}))
        )
        if isinstance(body, Failure):
            raise body.unavailable()
        data = body.get("data") if isinstance(body, dict) else None
        if not isinstance(data, list):
            raise failures.malformed("no list of models").unavailable()
        return tuple(str(model["id"]) for model in data if isinstance(model, dict) and "id" in model)

    async def complete(self, request: LlmRequest) -> Completion:
        """Make one call and wait for all of it. Raises LlmUnavailable."""
        async with self._account(request) as account, self._place(account):
            assembler = await self._retried(account, lambda features: self._body(account, features), stream=False)
            account.settle(assembler, self._price(account))
            account.error_kind = ""
            account.completion = _completion(account, assembler, assembler.finish_reason or "stop")
            return account.completion

    async def stream(self, request: LlmRequest) -> AsyncGenerator[str | Completion, None]:
        """Make one call; yield text as it arrives, then one Completion. Raises LlmUnavailable before any text."""
        async with self._account(request, stream=True) as account, self._place(account):
            opened = await self._retried(account, lambda features: self._opening(account, features), stream=True)
            assembler, cut = opened.assembler, False
            try:
                if opened.piece:
                    account.first_token = asyncio.get_running_loop().time()
                    account.span.set(semconv.FIRST_CHUNK, account.first_token - account.started)
                    yield opened.piece
                while not opened.ended:
                    piece = await self._attempt(self._next_piece(account, opened))
                    if isinstance(piece, Failure):
                        self._observer.attempt_failed(request.purpose, piece.kind)
                        cut = not assembler.finish_reason  # an answer that was whole already is not cut
                        break
                    if piece:
                        yield piece
            finally:
                account.settle(assembler, self._price(account))
                await opened.stream.close()
            reason = assembler.finish_reason or "cut"
            account.error_kind = "cut" if cut or reason == "cut" else ""
            completion = account.completion = _completion(account, assembler, "cut" if cut else reason)
        yield completion  # the place is free and the call is counted, even where nobody asks for what follows

    def _place(self, account: _Account) -> AbstractAsyncContextManager[None]:
        """A place among the calls; none is waited for while the server is left alone."""
        if self._breaker.open:
            raise failures.left_alone(self._server, self._config.breaker_seconds).unavailable()
        return self._slots.hold(account.deadline)

    def _price(self, account: _Account) -> Price | None:
        return self._config.prices.get(account.model)

    @asynccontextmanager
    async def _account(self, request: LlmRequest, *, stream: bool = False) -> AsyncIterator[_Account]:
        now = asyncio.get_running_loop().time()
        account = _Account(request, self._config.model_for(request.purpose), now, now + request.timeout_seconds)
        account.span = begin_chat(request, account.model, self._config.base_url, stream=stream)
        try:
            yield account
        except LlmUnavailable as error:
            account.error_kind = error.kind
            raise
        finally:
            first = account.first_token
            end_chat(account.span, account.usage, account.completion, account.attempts, account.error_kind)
            self._observer.call_ended(
                LlmCall(
                    purpose=request.purpose,
                    model=account.model,
                    seconds=asyncio.get_running_loop().time() - now,
                    first_token_seconds=None if first is None else first - now,
                    usage=account.usage,
                    estimated=account.estimated,
                    attempts=account.attempts,
                    error_kind=account.error_kind,
                )
            )

    async def _retried(
        self, account: _Account, attempt: Callable[[frozenset[Feature]], Awaitable[T]], *, stream: bool
    ) -> T:
        """Make attempts until one succeeds, none may follow, or no time is left."""
        wanted = features_of(account.request, stream=stream)
        known_missing = self._capabilities.missing(account.model)
        newly_missing: set[Feature] = set()
        retries = 0
        self._budget.called()
        while True:
            features = wanted - known_missing - newly_missing
            result = await self._guarded(account, attempt, features)
            if not isinstance(result, Failure):
                self._capabilities.learn(account.model, newly_missing)
                return result
            failed = result
            feature = blamed_feature(failed.status, failed.detail, in_effect(features))
            if feature is not None:
                newly_missing.add(feature)  # each is dropped once, so this ends
                continue
            account.span.note(
                "attempt failed", {semconv.ERROR_TYPE: failed.kind, "pointsman.attempt": account.attempts}
            )
            if failed.kind != "left_alone":
                self._observer.attempt_failed(account.request.purpose, failed.kind)
            if not failed.retryable or retries >= self._config.retries or not self._budget.take():
                raise failed.unavailable()
            await self._back_off(account, failed, retries)
            retries += 1

    async def _guarded(
        self, account: _Account, attempt: Callable[[frozenset[Feature]], Awaitable[T]], features: frozenset[Feature]
    ) -> T | Failure:
        """Make one attempt and tell the breaker; make none while the server is left alone."""
        if not self._breaker.allow():
            return failures.left_alone(self._server, self._config.breaker_seconds)
        account.attempts += 1
        try:
            result = await self._attempt(attempt(features), account.request)
        except BaseException:
            self._breaker.abandoned()
            raise
        if not isinstance(result, Failure) or result.kind == "refused":
            self._breaker.succeeded()
        elif result.kind == "timeout" and account.request.timeout_seconds < self._config.first_token_seconds:
            self._breaker.abandoned()  # the caller had less patience than a healthy server may take
        else:
            self._breaker.failed()
        return result

    async def _back_off(self, account: _Account, failed: Failure, retries: int) -> None:
        """Wait before the next attempt; raise at once where the wait would outlast the deadline."""
        longest = min(self._config.backoff_limit_seconds, self._config.backoff_seconds * 2**retries)
        wait = longest * (0.5 + self._jitter() / 2)
        if failed.retry_after is not None:
            wait = max(failed.retry_after * (1 + self._jitter() / 10), wait)
        if asyncio.get_running_loop().time() + wait >= account.deadline:
            raise failed.unavailable()
        await asyncio.sleep(wait)

    async def _attempt(self, work: Awaitable[T], request: LlmRequest | None = None) -> T | Failure:
        """Await `work`; what it raises becomes a Failure.

        The SDK's exceptions hold the request with its key, so they end here: an error raised from within the except
        clause would carry them along as its context.
        """
        try:
            return await work
        except self._openai.APIStatusError as error:
            return self._status_failure(error, request)
        except self._openai.APITimeoutError:
            return failures.broken(self._server, connected=False)  # the SDK's own limit is on connecting alone
        except self._openai.APIConnectionError as error:
            return failures.broken(self._server, connected=not _before_connection(error))
        except self._openai.APIError as error:  # an error event within a stream
            quoted = self._quotable(error.message, request)
            return failures.from_status(500, error.message, {}, server=self._server, quoted=quoted)
        except TimeoutError:
            return failures.late(f"no answer from {self._server} in time")
        except Malformed as error:
            return failures.malformed(str(error))
        except (json.JSONDecodeError, UnicodeError, RecursionError, self._openai.OpenAIError):
            return failures.malformed("not JSON")

    def _status_failure(self, error: openai.APIStatusError, request: LlmRequest | None) -> Failure:
        detail = _message_in(error.body)
        return failures.from_status(
            error.status_code,
            f"{detail} {error.param or ''}",
            error.response.headers,
            server=self._server,
            quoted=self._quotable(detail, request),
        )

    def _quotable(self, message: str, request: LlmRequest | None) -> str:
        prompt = "\n".join(part.content.value for part in request.messages) if request else ""
        return failures.quotable(message, secret=self._config.api_key, prompt=prompt)

    async def _body(self, account: _Account, features: frozenset[Feature]) -> Assembler:
        body = request_body(account.request, account.model, features, stream=False)
        async with asyncio.timeout_at(account.deadline):
            answer = await self._client.post(
                "/chat/completions", cast_to=object, body=body, options={"headers": self._traced(account)}
            )
        assembler = Assembler()
        assembler.read_body(answer)
        return assembler

    def _traced(self, account: _Account) -> dict[str, str | openai.Omit]:
        """The headers of an attempt: what the server does for it can be found in the trace of the call."""
        context = account.span.headers()
        return {**self._headers, **context} if context else self._headers

    async def _opening(self, account: _Account, features: frozenset[Feature]) -> _Open:
        """Open a stream and read it up to its first text, or to its end."""
        from openai import AsyncStream

        first_token_by = asyncio.get_running_loop().time() + self._config.first_token_seconds
        body = request_body(account.request, account.model, features, stream=True)
        async with asyncio.timeout_at(min(account.deadline, first_token_by)):
            stream = await self._client.post(
                "/chat/completions",
                cast_to=object,
                body=body,
                options={"headers": self._traced(account)},
                stream=True,
                stream_cls=AsyncStream[object],
            )
        opened = _Open(stream, Assembler(), "", ended=False)
        try:
            while not opened.piece and not opened.ended:
                opened.piece = await self._next_piece(account, opened, first_token_by=first_token_by)
            if not opened.piece and not opened.assembler.finish_reason:
                raise Malformed("the stream ended without a finish reason")
        except BaseException:
            await stream.close()
            raise
        return opened

    async def _next_piece(self, account: _Account, opened: _Open, *, first_token_by: float | None = None) -> str:
        """The next piece of text ("" for a chunk without any), within the limits of this moment."""
        assembler = opened.assembler
        if first_token_by is not None and not assembler.begun:
            by = first_token_by
        else:
            by = asyncio.get_running_loop().time() + self._config.idle_seconds
        try:
            async with asyncio.timeout_at(min(by, account.deadline)):
                chunk = await anext(opened.stream)
        except StopAsyncIteration:
            opened.ended = True
            return assembler.finish()
        piece = assembler.read_chunk(chunk)
        if assembler.length > _CHARACTERS_PER_TOKEN * account.request.max_tokens:
            assembler.finish_reason = "length"
            opened.ended = True
        return piece


def _completion(account: _Account, assembler: Assembler, reason: str) -> Completion:
    calls = assembler.tool_calls
    if calls and reason == "stop":
        reason = "tool_calls"
    return Completion(assembler.text, calls, reason, account.usage, account.model, account.estimated)


async def _within(seconds: float, work: Awaitable[T]) -> T:
    async with asyncio.timeout(seconds):
        return await work


def _before_connection(error: openai.APIConnectionError) -> bool:
    """Whether a connection was never made. The transport's classes are not the SDK's interface, their names are old."""
    return type(error.__cause__).__name__ in {"ConnectError", "ConnectTimeout", "UnsupportedProtocol", "InvalidURL"}


def _message_in(body: object) -> str:
    """The message in an error body of any of the shapes that servers use."""
    if isinstance(body, dict):
        for name in ("message", "error", "detail", "msg"):
            if name in body:
                return _message_in(body[name])
        return ""
    if isinstance(body, list):
        return " ".join(_message_in(part) for part in body[:4])
    return str(body)[:4000] if body is not None else ""
