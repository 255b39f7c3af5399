"""Filters as JSON clients write them, as the one filter there is.

    {"type": "and", "filters": [{"type": "eq", "key": "lang", "value": "en"}]}       the OpenAI API
    {"lang": "en", "year": {"gte": 2000, "lte": 2010}, "kind": ["memo", "rule"]}     a plain mapping: all must hold
    {"lang": {"$eq": "en"}, "$and": [...]}                                           the same with $, as R2R and others

Sizes and depth are checked where every filter is checked, in router.grpc.validate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pointsman.v1 import gateway_pb2

from router.http.values import a_list, a_mapping, a_number, a_text, kind_of
from standard.domain.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMPARISONS: Final = {"eq", "in", "gte", "lte", "and"}
_UNSUPPORTED: Final = {"ne", "gt", "lt", "nin", "or", "like", "ilike", "not"}
_MOST: Final = 1000


def to_filter_message(value: object, field: str) -> gateway_pb2.Filter | None:
    """A filter of any of the forms; None where it is absent or empty."""
    body = a_mapping(value, field)
    if not body:
        return None
    if isinstance(kind := body.get("type"), str) and ("key" in body or "filters" in body):
        return _typed(kind, body, field)
    return _all_of([_condition(key, wanted, f"{field}.{key}"[:160]) for key, wanted in body.items()], field)


def _typed(kind: str, body: dict[str, object], field: str) -> gateway_pb2.Filter:
    if kind == "and":
        parts = a_list(body.get("filters"), f"{field}.filters")
        if not parts:
            raise InvalidInput(f"{field}.filters", "is empty")
        return _all_of([_part(part, f"{field}.filters[{index}]") for index, part in enumerate(parts)], field)
    return _compared(kind, a_text(body.get("key"), f"{field}.key"), body.get("value"), field)


def _part(value: object, field: str) -> gateway_pb2.Filter:
    part = to_filter_message(value, field)
    if part is None:
        raise InvalidInput(field, "is empty")
    return part


def _condition(key: str, wanted: object, field: str) -> gateway_pb2.Filter:
    if key == "$and":
        parts = a_list(wanted, field)
        return _all_of([_part(part, f"{field}[{index}]") for index, part in enumerate(parts)], field)
    if key.startswith("$"):
        raise InvalidInput(field, "is not supported; use $and, or keys with eq, in, gte, lte")
    if isinstance(wanted, dict):
        if not wanted:
            raise InvalidInput(field, "is empty")
        return _all_of([_compared(kind.removeprefix("$"), key, bound, field) for kind, bound in wanted.items()], field)
    return _compared("in" if isinstance(wanted, list) else "eq", key, wanted, field)


def _compared(kind: str, key: str, value: object, field: str) -> gateway_pb2.Filter:
    if kind == "eq":
        return gateway_pb2.Filter(eq=gateway_pb2.Filter.Equals(key=key, value=_scalar(value, field)))
    if kind in {"gte", "lte"}:
        side = "at_least" if kind == "gte" else "at_most"
        bounds = gateway_pb2.Filter.Range(key=key)
        getattr(bounds, side).CopyFrom(_scalar(value, field))
        return gateway_pb2.Filter(range=bounds)
    if kind == "in":
        values = a_list(value, field)
        if len(values) > _MOST:
            raise InvalidInput(field, f"holds {len(values)} values")
        message = gateway_pb2.Filter()
        one_of = getattr(message, "in")
        one_of.key = key
        one_of.values.extend(_scalar(item, f"{field}[{index}]") for index, item in enumerate(values))
        one_of.SetInParent()
        return message
    known = ", ".join(sorted(_COMPARISONS))
    problem = "is not supported" if kind in _UNSUPPORTED else "is no comparison"
    raise InvalidInput(field, f"{kind[:40]!r} {problem}; use {known}")


def _all_of(parts: Sequence[gateway_pb2.Filter], field: str) -> gateway_pb2.Filter:
    if not parts:
        raise InvalidInput(field, "is empty")
    if len(parts) == 1:
        return parts[0]
    if len(parts) > _MOST:
        raise InvalidInput(field, f"holds {len(parts)} conditions")
    message = gateway_pb2.Filter()
    conjunction = getattr(message, "and")
    conjunction.filters.extend(parts)
    return message


def _scalar(value: object, field: str) -> gateway_pb2.FilterValue:
    if isinstance(value, bool):
        return gateway_pb2.FilterValue(truth=value)
    if isinstance(value, str):
        return gateway_pb2.FilterValue(text=value)
    if isinstance(value, int | float):
        return gateway_pb2.FilterValue(number=a_number(value, field) or 0.0)
    raise InvalidInput(field, f"must be text, a number or a truth value, not {kind_of(value)}")
