"""Metadata filters as SQL.

Prevents two failures: a filter from outside that becomes SQL (every key and value travels as a parameter), and one that
PostgreSQL cannot digest (NUL, lone surrogates, infinities, a thousand keys) and answers with an error of its own.

A filter looks at the top-level keys of `document.metadata` (jsonb):

- Eq and In compare JSON values: 2 equals 2.0, "2" does not equal 2, true does not equal 1. They are containment tests,
  which the GIN index on `document.metadata` serves.
- Range compares numbers with numbers and text with text, in code point order (PostgreSQL's "C" collation over UTF-8),
  never across; a key that is missing or of another type does not match.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from standard.domain.errors import InvalidInput
from standard.domain.filter import And, Eq, Filter, In, Range

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from standard.domain.filter import Scalar

MAX_CONDITIONS = 50
"""Conditions (Eq, In, Range) in one filter."""
MAX_VALUES = 100
"""Values of one In."""
MAX_DEPTH = 8
"""Nesting of And."""
MAX_KEY_LENGTH = 128
"""Code points of a key."""
MAX_TEXT_LENGTH = 1024
"""Code points of a text value."""


@dataclass(frozen=True, slots=True)
class FilterSql:
    """A condition over the table alias `d` (document) and its named parameters.

    `clause` holds placeholders (`%(filter_0)s`) and no value of the caller, so two filters of one shape share a clause
    and with it a prepared statement.
    """

    clause: str
    parameters: Mapping[str, object]


def check_filter(condition: Filter, field: str = "filter") -> None:
    """Refuse a filter that is malformed or beyond the limits above.

    Raises InvalidInput naming the offending part by its path (`filter.and[3].in.values[0]`).
    """
    total = sum(1 for _ in _checked(condition, field, 0))
    if total > MAX_CONDITIONS:
        raise InvalidInput(field, f"has {total} conditions; at most {MAX_CONDITIONS} are allowed")


def filter_sql(condition: Filter, field: str = "filter") -> FilterSql:
    """Translate a filter; raises InvalidInput as `check_filter` does."""
    check_filter(condition, field)
    parameters: dict[str, object] = {}
    return FilterSql(_clause(condition, parameters), parameters)


def _checked(condition: Filter, field: str, depth: int) -> Iterator[Filter]:
    if depth > MAX_DEPTH:
        raise InvalidInput(field, f"is nested deeper than {MAX_DEPTH} levels")
    match condition:
        case Eq(key, value):
            _check_key(key, f"{field}.eq.key")
            _check_scalar(value, f"{field}.eq.value")
            yield condition
        case In(key, values):
            _check_key(key, f"{field}.in.key")
            if not 1 <= len(values) <= MAX_VALUES:
                raise InvalidInput(f"{field}.in.values", f"has {len(values)} values; 1 to {MAX_VALUES} are allowed")
            for index, value in enumerate(values):
                _check_scalar(value, f"{field}.in.values[{index}]")
            yield condition
        case Range(key, at_least, at_most):
            _check_key(key, f"{field}.range.key")
            _check_bounds(at_least, at_most, field)
            yield condition
        case And(parts):
            if not parts:
                raise InvalidInput(f"{field}.and", "is empty; leave the filter out instead")
            if len(parts) > MAX_CONDITIONS:
                raise InvalidInput(f"{field}.and", f"has {len(parts)} parts; at most {MAX_CONDITIONS} are allowed")
            for index, part in enumerate(parts):
                yield from _checked(part, f"{field}.and[{index}]", depth + 1)


def _check_bounds(at_least: str | float | None, at_most: str | float | None, field: str) -> None:
    bounds = [(f"{field}.range.{name}", bound) for name, bound in (("at_least", at_least), ("at_most", at_most))]
    given = [(path, bound) for path, bound in bounds if bound is not None]
    if not given:
        raise InvalidInput(f"{field}.range", "has neither at_least nor at_most")
    for path, bound in given:
        if isinstance(bound, bool):
            raise InvalidInput(path, "is a truth value; a range takes numbers or text")
        _check_scalar(bound, path)
    if len({isinstance(bound, str) for _, bound in given}) > 1:
        raise InvalidInput(f"{field}.range", "mixes a number with text; both bounds must be of one type")


def _check_key(key: str, field: str) -> None:
    if not 1 <= len(key) <= MAX_KEY_LENGTH:
        raise InvalidInput(field, f"has {len(key)} characters; 1 to {MAX_KEY_LENGTH} are allowed")
    _check_text(key, field)


def _check_scalar(value: Scalar, field: str) -> None:
    if isinstance(value, str):
        if len(value) > MAX_TEXT_LENGTH:
            raise InvalidInput(field, f"has {len(value)} characters; at most {MAX_TEXT_LENGTH} are allowed")
        _check_text(value, field)
    elif not math.isfinite(value):
        raise InvalidInput(field, "is not a finite number")


def _check_text(text: str, field: str) -> None:
    if "\x00" in text:
        raise InvalidInput(field, "holds a NUL character, which no stored metadata can hold")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidInput(field, "holds a lone surrogate, which is not valid Unicode text")


def _clause(condition: Filter, parameters: dict[str, object]) -> str:
    match condition:
        case Eq(key, value):
            return f"d.metadata @> {_bind(_object(key, value), parameters)}::jsonb"
        case In(key, values):
            objects = [_object(key, value) for value in values]
            return f"d.metadata @> any({_bind(objects, parameters)}::jsonb[])"
        case Range(key, at_least, at_most):
            return _range_clause(key, at_least, at_most, parameters)
        case And(parts):
            return " and ".join(f"({_clause(part, parameters)})" for part in parts)


def _range_clause(
    key: str, at_least: str | float | None, at_most: str | float | None, parameters: dict[str, object]
) -> str:
    name = f"{_bind(key, parameters)}::text"
    # jsonb orders numbers as numeric, so no cast can fail on a value of another type; its order of text follows the
    # database's collation, which is why text is taken out and compared bytewise
    if isinstance(at_least, str) or isinstance(at_most, str):
        kind, value, cast = "string", f'(d.metadata ->> {name}) collate "C"', "text"
    else:
        kind, value, cast = "number", f"(d.metadata -> {name})", "jsonb"
    tests = [f"jsonb_typeof(d.metadata -> {name}) = '{kind}'"]
    for operator, bound in ((">=", at_least), ("<=", at_most)):
        if bound is not None:
            bound_parameter = bound if isinstance(bound, str) else json.dumps(bound)
            tests.append(f"{value} {operator} {_bind(bound_parameter, parameters)}::{cast}")
    return " and ".join(tests)


def _object(key: str, value: Scalar) -> str:
    return json.dumps({key: value}, ensure_ascii=False)


def _bind(value: object, parameters: dict[str, object]) -> str:
    name = f"filter_{len(parameters)}"
    parameters[name] = value
    return f"%({name})s"
