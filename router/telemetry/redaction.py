"""What a log record may hold: no secret ever, and of people's texts what the settings allow.

What goes wrong without it: a question stands in a log that is kept for a year by people who may not read the journal;
an API key stands in an error message of a library that quotes its request. Who writes a log line should not have to
think of either. Texts are known by the names under which they are logged; within a call the messages of exceptions
count as texts too, since a driver's error quotes the row that it refused.
"""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, SecretStr

from router.journal.codec import kept
from router.telemetry.calls import call_in_hand
from standard.domain.errors import PointsmanError

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    from router.journal.codec import Consent
    from router.settings import Settings

TEXTS: Final = frozenset({
    "question", "questions", "query", "queries", "answer", "text", "texts", "passage", "passages", "prompt", "reply",
    "input", "history", "comment", "content", "quote", "snippet", "clarification", "messages",
})  # fmt: skip
"""Names of values that tell of a question or its answer."""
SECRETS: Final = frozenset({
    "api_key", "x-api-key", "authorization", "password", "secret", "token", "cookie", "headers",
})  # fmt: skip
"""Names of values that are never shown."""
WITHHELD: Final = "[withheld]"
SECRET: Final = "[secret]"  # noqa: S105 - what stands in the place of one
_STRICTNESS: Final[tuple[Consent, ...]] = ("text", "hash", "nothing")
_SHORTEST: Final = 6
"""A secret shorter than this would black out words."""
# Keys of ours and of OpenAI's kind, what follows Bearer, credentials within URLs.
_KNOWN: Final = (
    r"pm_[0-9a-f]{12}_[A-Za-z0-9_-]{43}",
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"(?<=[Bb]earer )[^\s'\",]{6,}",
    r"(?<=://)[^\s/@:]*:[^\s/@]+(?=@)",
)


def stricter(one: Consent, other: Consent) -> Consent:
    """The one of two that keeps less."""
    return max(one, other, key=_STRICTNESS.index)


def secrets_of(settings: Settings) -> tuple[str, ...]:
    """Every secret of the settings."""

    def found(value: object) -> Iterator[str]:
        match value:
            case SecretStr():
                yield value.get_secret_value()
            case BaseModel():
                for name in type(value).model_fields:
                    yield from found(getattr(value, name))
            case dict():
                for inner in value.values():
                    yield from found(inner)
            case _:
                pass

    return tuple(dict.fromkeys(secret for secret in found(settings) if len(secret) >= _SHORTEST))


@dataclass(frozen=True, slots=True)
class Redaction:
    """A structlog processor. Make it with `redaction`."""

    consent: Consent
    secret: re.Pattern[str]

    def __call__(self, _logger: object, _method: str, record: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Reduce the record's values to what may be shown."""
        error = record.pop("exc_info", None)
        if error:
            record["exception"] = self._told(error)
        for name, value in record.items():
            record[name] = self._shown(name, value)
        return record

    def _shown(self, name: str, value: Any) -> Any:  # noqa: ANN401 - whatever is logged
        if name in SECRETS:
            return SECRET if value else value
        if name in TEXTS and not isinstance(value, bool | int | float | None):
            return value if self.consent == "text" else (kept(str(value), self.consent) or WITHHELD)
        if isinstance(value, str):
            return self.secret.sub(SECRET, value)
        if isinstance(value, dict):
            return {key: self._shown(str(key), inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._shown("", inner) for inner in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        return self.secret.sub(SECRET, str(value))

    def _told(self, error: Any) -> str:  # noqa: ANN401 - what logging takes: True, a triple, or an exception
        if error is True:
            import sys

            error = sys.exc_info()
        found = error[1] if isinstance(error, tuple) else error
        if not isinstance(found, BaseException):
            return ""
        if self.consent == "text" or call_in_hand() is None:
            return "".join(traceback.format_exception(found))
        return "".join(_without_messages(found, set()))


def tellable(error: BaseException) -> str:
    """What a log may say of an error: the message of ours, of others the kind, for a driver quotes what it refused."""
    return error.message if isinstance(error, PointsmanError) else type(error).__qualname__


def redaction(consent: Consent, secrets: tuple[str, ...] = ()) -> Redaction:
    """The processor for these secrets and for what is known to be one wherever it stands."""
    given = [re.escape(secret) for secret in sorted(secrets, key=len, reverse=True)]
    return Redaction(consent, re.compile("|".join([*given, *_KNOWN])))


def _without_messages(error: BaseException, seen: set[int]) -> Iterator[str]:
    """A traceback whose exceptions tell their kind alone; our own errors are written without texts."""
    seen.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None and id(before) not in seen:
        yield from _without_messages(before, seen)
        yield "\n"
    yield "Traceback (most recent call last):\n"
    yield from traceback.format_tb(error.__traceback__)
    told = error.message if isinstance(error, PointsmanError) else WITHHELD
    state = getattr(error, "sqlstate", None)
    yield f"{type(error).__module__}.{type(error).__qualname__}{f' [{state}]' if state else ''}: {told}\n"
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _without_messages(inner, seen)
