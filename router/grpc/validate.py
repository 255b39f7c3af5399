"""Requests checked at the edge and turned into domain types. Every refusal is an InvalidInput that names the field."""

from __future__ import annotations

import asyncio
import math
import re
import unicodedata
from typing import TYPE_CHECKING, Final, Literal, cast

from pointsman.v1 import gateway_pb2

from standard.domain.errors import InvalidInput
from standard.domain.filter import And, Eq, Filter, In, Range, Scalar
from standard.domain.passage import Scope
from standard.domain.question import Budget, Question, Route, Turn
from standard.domain.text import UntrustedText

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.access.identity import Identity
    from router.settings import LimitSettings

ROUTES: Final = {gateway_pb2.ROUTE_STANDARD: Route.STANDARD, gateway_pb2.ROUTE_AGENTIC: Route.AGENTIC}
_ID = re.compile(r"[\x21-\x7e]{1,128}")
_COLLECTION = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Cs"})
# what shows nothing though its category is a letter's or a symbol's: fillers of Hangul, selectors, the blank of Braille
_FILLER = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_FILTER_CONDITIONS = 64
_FILTER_DEPTH = 8
_FILTER_VALUES = 100
DEFAULT_TOP_K = 5


def to_question(
    request: gateway_pb2.AnswerRequest, identity: Identity, limits: LimitSettings, deadline: float | None
) -> Question:
    """Check an AnswerRequest. `deadline` is the event loop's time at which the answer must be out, or None."""
    return Question(
        text=question_text(request.question, "question", limits),
        scope=Scope(
            tenant=identity.tenant,
            collection=identity.admitted(collection_name(request.collection)),
            filter=to_filter(request.filter) if request.HasField("filter") else None,
            groups=identity.groups,
            narrowed=identity.collections is not None,
        ),
        history=to_history(request.history, limits),
        route=to_route(request.route, "route"),
        threshold=fraction(request.threshold, "threshold") if request.HasField("threshold") else None,
        top_k=to_top_k(request.top_k),
        budget=to_budget(request.budget),
        session_id=identifier(request.session_id, "session_id"),
        request_id=identifier(request.request_id, "request_id"),
        dry_run=request.dry_run,
        deadline=deadline,
    )


def question_text(text: str, field: str, limits: LimitSettings) -> UntrustedText:
    """A question: not blank, without NUL, within the limit."""
    if len(text) > limits.question_chars:
        raise InvalidInput(field, f"has {len(text)} characters; at most {limits.question_chars} are allowed")
    if not any(map(_is_visible, text.replace("\x00", "x"))):
        raise InvalidInput(field, "is empty")
    if "\x00" in text:
        raise InvalidInput(field, "contains a NUL character")
    if not any(character.isalnum() for character in text) and not any(ord(character) > 0x2000 for character in text):
        raise InvalidInput(field, "contains no letter, digit or symbol to look for")
    return UntrustedText(text)


def _is_visible(character: str) -> bool:
    """Whether a character shows anything: no white space, control, format or unassigned sign, no filler."""
    return (
        not character.isspace()
        and unicodedata.category(character) not in _UNSEEN
        and _FILLER.fullmatch(character) is None
    )


def to_history(turns: Iterable[gateway_pb2.Turn], limits: LimitSettings) -> tuple[Turn, ...]:
    """Earlier messages, oldest first."""
    given = list(turns)
    if len(given) > limits.history_turns:
        raise InvalidInput("history", f"has {len(given)} turns; at most {limits.history_turns} are allowed")
    checked: list[Turn] = []
    for index, turn in enumerate(given):
        if turn.role not in {"user", "assistant"}:
            raise InvalidInput(f"history[{index}].role", "must be user or assistant")
        if len(turn.text) > limits.turn_chars:
            raise InvalidInput(f"history[{index}].text", f"is longer than {limits.turn_chars} characters")
        role = cast(Literal["user", "assistant"], turn.role)
        checked.append(Turn(role, UntrustedText(turn.text.replace("\x00", "\ufffd"))))
    return tuple(checked)


def to_route(value: int, field: str) -> Route | None:
    """A forced route; None for unspecified."""
    if value == gateway_pb2.ROUTE_UNSPECIFIED:
        return None
    route = ROUTES.get(cast("gateway_pb2.Route.ValueType", value))
    if route is None:
        raise InvalidInput(field, f"{value} is no route; use ROUTE_UNSPECIFIED, ROUTE_STANDARD or ROUTE_AGENTIC")
    return route


def to_top_k(value: int) -> int:
    """The number of passages; 0 = the default."""
    if value == 0:
        return DEFAULT_TOP_K
    if not 1 <= value <= 100:
        raise InvalidInput("top_k", f"{value} is not within 1 to 100")
    return value


def fraction(value: float, field: str) -> float:
    """A number from 0 to 1."""
    if not 0.0 <= value <= 1.0:  # NaN fails too
        raise InvalidInput(field, f"{value} is not within 0 to 1")
    return value


def to_budget(budget: gateway_pb2.Budget) -> Budget:
    """The caps of a run; what is not given stays None."""
    if budget.max_steps and not 1 <= budget.max_steps <= 20:
        raise InvalidInput("budget.max_steps", f"{budget.max_steps} is not within 1 to 20")
    if budget.max_tokens and not 256 <= budget.max_tokens <= 10_000_000:
        raise InvalidInput("budget.max_tokens", f"{budget.max_tokens} is not within 256 to 10000000")
    seconds = budget.max_seconds
    if seconds != 0.0 and not 0.0 < seconds <= 3600.0:
        raise InvalidInput("budget.max_seconds", f"{seconds} is not above 0 and at most 3600")
    cost = budget.max_cost_usd if budget.HasField("max_cost_usd") else None
    if cost is not None and not 0.0 <= cost <= 1000.0:
        raise InvalidInput("budget.max_cost_usd", f"{cost} is not within 0 to 1000")
    return Budget(budget.max_steps or None, budget.max_tokens or None, seconds or None, cost)


def identifier(value: str, field: str, *, required: bool = False) -> str:
    """An id of at most 128 printable ASCII characters without blanks; empty where not required."""
    if not value:
        if required:
            raise InvalidInput(field, "is missing")
        return ""
    if not _ID.fullmatch(value):
        raise InvalidInput(field, "must be 1 to 128 printable ASCII characters without blanks")
    return value


def collection_name(value: str) -> str:
    """A collection's name; empty = `default`."""
    name = value or "default"
    if not _COLLECTION.fullmatch(name):
        raise InvalidInput("collection", "must be 1 to 128 of the characters a-z, A-Z, 0-9, _, -, .")
    return name


def to_filter(message: gateway_pb2.Filter) -> Filter:
    """A filter, its depth and size checked."""
    return _filter(message, "filter", _FILTER_DEPTH, [0])


def _filter(message: gateway_pb2.Filter, field: str, depth: int, seen: list[int]) -> Filter:
    seen[0] += 1
    if seen[0] > _FILTER_CONDITIONS:
        raise InvalidInput("filter", f"has more than {_FILTER_CONDITIONS} conditions")
    if depth == 0:
        raise InvalidInput(field, f"is nested more than {_FILTER_DEPTH} deep")
    kind = message.WhichOneof("condition")
    if kind == "eq":
        return Eq(_key(message.eq.key, f"{field}.eq"), _scalar(message.eq.value, f"{field}.eq.value"))
    if kind == "in":
        one_of = cast(gateway_pb2.Filter.OneOf, getattr(message, "in"))
        if not 1 <= len(one_of.values) <= _FILTER_VALUES:
            raise InvalidInput(f"{field}.in.values", f"must hold 1 to {_FILTER_VALUES} values")
        values = tuple(_scalar(value, f"{field}.in.values[{index}]") for index, value in enumerate(one_of.values))
        return In(_key(one_of.key, f"{field}.in"), values)
    if kind == "range":
        return _range(message.range, f"{field}.range")
    if kind == "and":
        parts = cast(gateway_pb2.Filter.AllOf, getattr(message, "and")).filters
        if not 1 <= len(parts) <= _FILTER_CONDITIONS:
            raise InvalidInput(f"{field}.and.filters", f"must hold 1 to {_FILTER_CONDITIONS} filters")
        return And(
            tuple(_filter(part, f"{field}.and.filters[{index}]", depth - 1, seen) for index, part in enumerate(parts))
        )
    raise InvalidInput(field, "holds no condition; give one of eq, in, range, and")


def _range(message: gateway_pb2.Filter.Range, field: str) -> Range:
    key = _key(message.key, field)
    low = _bound(message.at_least, f"{field}.at_least") if message.HasField("at_least") else None
    high = _bound(message.at_most, f"{field}.at_most") if message.HasField("at_most") else None
    if low is None and high is None:
        raise InvalidInput(field, "has neither at_least nor at_most")
    if low is not None and high is not None and isinstance(low, str) != isinstance(high, str):
        raise InvalidInput(field, "has bounds of two types")
    return Range(key, low, high)


def _bound(value: gateway_pb2.FilterValue, field: str) -> str | float:
    scalar = _scalar(value, field)
    if isinstance(scalar, bool):
        raise InvalidInput(field, "must be text or a number")
    return scalar


def _key(key: str, field: str) -> str:
    if not 1 <= len(key) <= 128 or "\x00" in key:
        raise InvalidInput(f"{field}.key", "must have 1 to 128 characters and no NUL")
    return key


def _scalar(value: gateway_pb2.FilterValue, field: str) -> Scalar:
    kind = value.WhichOneof("value")
    if kind == "text":
        if len(value.text) > 1024 or "\x00" in value.text:
            raise InvalidInput(field, "must have at most 1024 characters and no NUL")
        return value.text
    if kind == "number":
        if not math.isfinite(value.number):
            raise InvalidInput(field, "must be a finite number")
        return value.number
    if kind == "truth":
        return value.truth
    raise InvalidInput(field, "is missing")


def answer_deadline(seconds_left: float | None, default_seconds: float, reserve_seconds: float) -> float:
    """The event loop's time at which an answer must be out: the call's deadline less a reserve."""
    left = default_seconds if seconds_left is None else seconds_left
    return asyncio.get_running_loop().time() + max(left - min(reserve_seconds, left / 2), 0.0)
