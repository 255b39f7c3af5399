"""What the client tells those who count: router.telemetry makes metrics of it, without being imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from standard.domain.answer import Usage
    from standard.llm.protocol import Purpose


@dataclass(frozen=True, slots=True)
class LlmCall:
    """A call that ended, well or not.

    `seconds` counts from the request to its end, waiting for a place and retries included; `first_token_seconds` until
    the first text of a stream (None where there was none). `error_kind` is "" for a whole answer, `cancelled`, or a
    kind of LlmUnavailable (`cut` also for a stream that broke off after text). `usage` is what is known to be used.
    """

    purpose: Purpose
    model: str
    seconds: float
    first_token_seconds: float | None
    usage: Usage
    estimated: bool
    attempts: int
    error_kind: str = ""


class LlmObserver(Protocol):
    """Is told of calls, in the event loop's thread; must be quick and must not raise."""

    def call_ended(self, call: LlmCall) -> None:
        """A call ended: one observation of pointsman_llm_request_seconds{purpose}, its tokens and its cost."""
        ...

    def attempt_failed(self, purpose: Purpose, kind: str) -> None:
        """One attempt failed, whether or not another follows: one count of pointsman_llm_errors_total{kind}."""
        ...


class SilentObserver:
    """Counts nothing."""

    def call_ended(self, call: LlmCall) -> None:
        """Do nothing."""

    def attempt_failed(self, purpose: Purpose, kind: str) -> None:
        """Do nothing."""
