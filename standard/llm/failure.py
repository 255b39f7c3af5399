"""What went wrong with a call: its kind, whether another try may help, and words that give nothing away.

A model server's own message often helps ("model `x` not found") and sometimes repeats what it was sent, the key or the
documents. So a message is quoted only after the key is taken out, and only where it shares no longer stretch with the
prompt.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from standard.domain.errors import LlmUnavailable, Overloaded

if TYPE_CHECKING:
    from collections.abc import Mapping

_QUOTED_LENGTH = 200
_SHARED_LENGTH = 24
_RETRIED_STATUSES = frozenset({408, 409, 425, 429})


class LlmOverloaded(LlmUnavailable, Overloaded):
    """Too many calls wait for the model server already. A route may answer without it; a caller may come back later."""

    grpc_code = "RESOURCE_EXHAUSTED"
    http_status = 429
    reason = "LLM_OVERLOADED"

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message, kind="overloaded", retry_after_seconds=retry_after_seconds)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt. `kind` as in LlmUnavailable, or left_alone where none was made.

    `status` and `detail` (not to be shown) where HTTP told them.
    """

    kind: str
    message: str
    retryable: bool = False
    retry_after: float | None = None
    status: int | None = None
    detail: str = ""

    def unavailable(self) -> LlmUnavailable:
        """The error for callers."""
        return LlmUnavailable(self.message, kind=self.kind, retry_after_seconds=self.retry_after)


def left_alone(server: str, seconds: float) -> Failure:
    """The server failed so often of late that it is not asked."""
    told = f"The model server at {server} failed repeatedly and is left alone for a moment."
    return Failure("left_alone", told, retry_after=seconds)


def late(what: str) -> Failure:
    """A wait that took too long."""
    return Failure("timeout", f"The model server was too slow: {what}.")


def malformed(what: str) -> Failure:
    """A response that is no answer."""
    return Failure("malformed", f"The model server did not answer as the OpenAI API does: {what}. Check llm.base_url.")


def broken(server: str, *, connected: bool) -> Failure:
    """A connection that failed to open, or closed too early."""
    if connected:
        return Failure("cut", f"The model server at {server} closed the connection early.", retryable=True)
    return Failure("connect", f"The model server at {server} cannot be reached. Check llm.base_url.", retryable=True)


def from_status(status: int, detail: str, headers: Mapping[str, str], *, server: str, quoted: str) -> Failure:
    """An HTTP error. `detail` is the server's message, `quoted` what of it may be shown."""
    said = f": {quoted}" if quoted else ""
    told = f"The model server at {server} answered {status}{said}."
    wait = retry_after(headers)
    if status == 429:
        return Failure("rate_limited", told, True, wait, status, detail)
    if status >= 500 or status in _RETRIED_STATUSES:
        return Failure("server", told, True, wait, status, detail)
    advice = {401: " Check llm.api_key.", 403: " Check llm.api_key.", 404: " Check llm.base_url and llm.model."}
    return Failure("refused", told + advice.get(status, ""), status=status, detail=detail)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by Retry-After (seconds or an HTTP date, RFC 9110 10.2.3) or retry-after-ms; None without."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * scale
        except ValueError:
            seconds = _until(value)
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    return None


def _until(date: str) -> float:
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (ValueError, OverflowError):
        return math.nan


def quotable(message: str, *, secret: str, prompt: str) -> str:
    """What of a server's message may be shown: one short line without the key, and nothing that echoes the prompt."""
    if secret:
        message = message.replace(secret, "***")
        # Some servers echo the key cut short, so no longer stretch of it may stay either.
        for start in range(0, len(secret) - 8, 4):
            message = message.replace(secret[start : start + 8], "***")
    line = " ".join(message.split())[:_QUOTED_LENGTH]
    echoes = any(line[at : at + _SHARED_LENGTH] in prompt for at in range(max(len(line) - _SHARED_LENGTH, 0)))
    return "" if echoes else line


def server_name(base_url: str) -> str:
    """Scheme, host and port of a URL: what may be shown of it."""
    parts = urlsplit(base_url)
    host = parts.hostname or base_url.rpartition("@")[2]
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")
