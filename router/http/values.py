"""Values out of a request's JSON: each of the type that is due, or an InvalidInput that names its place."""

from __future__ import annotations

import math
from typing import Any, Final

from pointsman.v1 import gateway_pb2

from standard.domain.errors import InvalidInput

INT32_MAX: Final = 2**31 - 1


def a_text(value: object, field: str) -> str:
    """A text; absent (None) is empty."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidInput(field, f"must be text, not {kind_of(value)}")
    return value


def a_number(value: object, field: str) -> float | None:
    """A finite number; None where absent."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(field, f"must be a number, not {kind_of(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidInput(field, "must be a finite number")
    return number


def an_integer(value: object, field: str) -> int | None:
    """A whole number of 32 bits; 5.0 is one. None where absent."""
    number = a_number(value, field)
    if number is None:
        return None
    if number != int(number) or abs(number) > INT32_MAX:
        raise InvalidInput(field, "must be a whole number")
    return int(number)


def a_truth(value: object, field: str) -> bool:
    """True or false; absent is false."""
    if value is None:
        return False
    if not isinstance(value, bool):
        raise InvalidInput(field, f"must be true or false, not {kind_of(value)}")
    return value


def a_mapping(value: object, field: str) -> dict[str, Any]:
    """An object; absent is empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(field, f"must be an object, not {kind_of(value)}")
    return value


def a_list(value: object, field: str) -> list[Any]:
    """A list; absent is empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidInput(field, f"must be a list, not {kind_of(value)}")
    return value


def kind_of(value: object) -> str:
    """What a JSON value is, for people."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "an object"


def only(body: dict[str, Any], known: frozenset[str], field: str = "") -> None:
    """Refuse keys that are not `known`, so that a typo is seen."""
    for key in body:
        if key not in known:
            place = f"{field}.{key}" if field else key
            raise InvalidInput(place[:160], f"is not known; known are {', '.join(sorted(known))}")


def budget_message(value: object, field: str) -> gateway_pb2.Budget:
    """A budget: max_steps, max_tokens, max_seconds, max_cost_usd; ranges are checked with the question."""
    body = a_mapping(value, field)
    only(body, frozenset({"max_steps", "max_tokens", "max_seconds", "max_cost_usd"}), field)
    budget = gateway_pb2.Budget()
    if (steps := an_integer(body.get("max_steps"), f"{field}.max_steps")) is not None:
        budget.max_steps = _not_negative(steps, f"{field}.max_steps")
    if (tokens := an_integer(body.get("max_tokens"), f"{field}.max_tokens")) is not None:
        budget.max_tokens = _not_negative(tokens, f"{field}.max_tokens")
    if (seconds := a_number(body.get("max_seconds"), f"{field}.max_seconds")) is not None:
        budget.max_seconds = seconds
    if (cost := a_number(body.get("max_cost_usd"), f"{field}.max_cost_usd")) is not None:
        budget.max_cost_usd = cost
    return budget


def _not_negative(value: int, field: str) -> int:
    if value < 0:
        raise InvalidInput(field, "is negative")
    return value
