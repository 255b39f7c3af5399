"""Which rows of a foreign table a search may see, as SQL.

Prevents two failures: a filter or a tenant from outside that becomes SQL (names come from the mapping and are quoted,
every value travels as a parameter), and a statement that forgets the caller's scope (all of them take their condition
from here).

A filter's key is looked up among the mapping's columns first, then in the metadata. There it means what it means in
the gateway's own corpus (standard.retrieval.filters): 2 equals 2.0 and not "2", a missing key matches nothing. Of a
column the type decides: numbers compare with numbers, text with text, dates with text that reads as a date.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from psycopg import sql

from standard.domain.errors import InvalidInput
from standard.domain.filter import And, Eq, Filter, In, Range
from standard.foreign.quoting import Constant, Name
from standard.retrieval.filters import check_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from standard.domain.filter import Scalar
    from standard.domain.passage import Scope
    from standard.foreign.catalogue import Column
    from standard.foreign.mapping import Field, TableMapping

ROW = Name("t")
"""The alias of the table in every statement."""
NEVER = sql.SQL("false")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition over the alias `t` and its named parameters; `clause` holds placeholders and no value."""

    clause: sql.Composable
    parameters: Mapping[str, object] = field(default_factory=dict)
    filtered: bool = False


def column_sql(name: str) -> sql.Composed:
    """A column of the table."""
    return sql.SQL("{}.{}").format(ROW, Name(name))


def text_of(wanted: Field, columns: Mapping[str, Column]) -> sql.Composed:
    """A field as text."""
    column = column_sql(wanted.column)
    if not wanted.path:
        return sql.SQL("{}::text").format(column)
    path = sql.SQL(", ").join(Constant(part) for part in wanted.path)
    kind = sql.SQL("jsonb" if columns[wanted.column].type == "jsonb" else "json")
    return sql.SQL("{}_extract_path_text({}, {})").format(kind, column, path)


def first_text(fields: Sequence[Field], columns: Mapping[str, Column]) -> sql.Composable:
    """The first of some fields that holds something, as text, else ''."""
    if not fields:
        return sql.SQL("''::text")
    parts = sql.SQL(", ").join(sql.SQL("nullif({}, '')").format(text_of(each, columns)) for each in fields)
    return sql.SQL("coalesce({}, '')").format(parts)


def json_of(wanted: Field, columns: Mapping[str, Column]) -> sql.Composed:
    """A field as jsonb; an array column as a json array."""
    column = column_sql(wanted.column)
    whole = column if columns[wanted.column].type == "jsonb" else sql.SQL("to_jsonb({})").format(column)
    if columns[wanted.column].type == "json":
        whole = sql.SQL("{}::jsonb").format(column)
    if not wanted.path:
        return sql.SQL("{}").format(whole)
    path = sql.SQL(", ").join(Constant(part) for part in wanted.path)
    return sql.SQL("jsonb_extract_path({}, {})").format(whole, path)


@dataclass(slots=True)
class _Parameters:
    values: dict[str, object] = field(default_factory=dict)

    def bind(self, value: object) -> sql.Placeholder:
        name = f"value_{len(self.values)}"
        self.values[name] = value
        return sql.Placeholder(name)


def fixed_condition(mapping: TableMapping, columns: Mapping[str, Column], collection_id: str) -> Condition:
    """What holds for every search of the table: its LangChain collection and the mapping's `only`."""
    bound = _Parameters()
    clauses: list[sql.Composable] = []
    if collection_id:
        # a literal: the planner must see it to prove that a partial index of the collection serves
        clauses.append(
            sql.SQL("{} = {}::uuid").format(column_sql("collection_id"), Constant(collection_id)),
        )
    clauses += [_column_equals(columns[name], [value], bound) for name, value in mapping.only.items()]
    return Condition(_all(clauses), bound.values, filtered=bool(clauses))


def scope_condition(mapping: TableMapping, columns: Mapping[str, Column], fixed: Condition, scope: Scope) -> Condition:
    """What a caller may see of the table. Raises InvalidInput where the scope's filter is malformed."""
    bound = _Parameters(dict(fixed.parameters))
    clauses: list[sql.Composable] = [fixed.clause] if fixed.filtered else []
    if mapping.tenant_column:
        clauses.append(
            sql.SQL("{}::text = {}::text").format(column_sql(mapping.tenant_column), bound.bind(scope.tenant))
            if columns[mapping.tenant_column].category != "S"
            else sql.SQL("{} = {}::text").format(column_sql(mapping.tenant_column), bound.bind(scope.tenant))
        )
    for each in mapping.groups:
        held = json_of(each, columns)
        clauses.append(
            sql.SQL("({held} is null or {held} in ('null', '[]') or {held} ?| {groups}::text[])").format(
                held=held, groups=bound.bind(sorted(scope.groups))
            )
        )
    if scope.filter is not None:
        check_filter(scope.filter)
        clauses.append(_filter(scope.filter, mapping, columns, bound, "filter"))
    return Condition(_all(clauses), bound.values, filtered=bool(clauses))


def _all(clauses: Sequence[sql.Composable]) -> sql.Composable:
    if not clauses:
        return sql.SQL("true")
    return sql.SQL(" and ").join(sql.SQL("({})").format(each) for each in clauses)


def _filter(
    condition: Filter, mapping: TableMapping, columns: Mapping[str, Column], bound: _Parameters, path: str
) -> sql.Composable:
    if isinstance(condition, And):
        return _all(
            [
                _filter(part, mapping, columns, bound, f"{path}.and[{index}]")
                for index, part in enumerate(condition.parts)
            ]
        )
    column = columns.get(mapping.filters.get(condition.key, ""))
    if column is None and not mapping.metadata:
        known = ", ".join(sorted(mapping.filters)) or "none"
        raise InvalidInput(
            path, f"the table {mapping.name!r} cannot be filtered by {condition.key!r:.80}; keys it has: {known}"
        )
    match condition:
        case Eq(key, value):
            values: tuple[Scalar, ...] = (value,)
            return _equals(key, values, column, mapping, columns, bound)
        case In(key, values):
            return _equals(key, values, column, mapping, columns, bound)
        case Range(key, at_least, at_most):
            if column is not None:
                return _column_range(column, at_least, at_most, bound, path)
            return _metadata_range(key, at_least, at_most, mapping, columns, bound)


def _metadata(mapping: TableMapping, columns: Mapping[str, Column]) -> sql.Composed:
    column = column_sql(mapping.metadata)
    return column if columns[mapping.metadata].type == "jsonb" else sql.SQL("{}::jsonb").format(column)


def _equals(
    key: str,
    values: Sequence[Scalar],
    column: Column | None,
    mapping: TableMapping,
    columns: Mapping[str, Column],
    bound: _Parameters,
) -> sql.Composable:
    if column is not None:
        return _column_equals(column, values, bound)
    objects = [json.dumps({key: value}, ensure_ascii=False) for value in values]
    held = _metadata(mapping, columns)
    if len(objects) == 1:  # containment, which a GIN index on the metadata serves
        return sql.SQL("{} @> {}::jsonb").format(held, bound.bind(objects[0]))
    return sql.SQL("{} @> any({}::jsonb[])").format(held, bound.bind(objects))


def _metadata_range(
    key: str,
    at_least: str | float | None,
    at_most: str | float | None,
    mapping: TableMapping,
    columns: Mapping[str, Column],
    bound: _Parameters,
) -> sql.Composable:
    held, name = _metadata(mapping, columns), bound.bind(key)
    if isinstance(at_least, str) or isinstance(at_most, str):
        kind, cast = "string", sql.SQL("text")
        value = sql.SQL('({} ->> {}::text) collate "C"').format(held, name)
    else:
        kind, cast = "number", sql.SQL("jsonb")
        value = sql.SQL("({} -> {}::text)").format(held, name)
    tests: list[sql.Composable] = [
        sql.SQL("jsonb_typeof({} -> {}::text) = {}").format(held, name, Constant(kind)),
    ]
    for operator, limit in ((">=", at_least), ("<=", at_most)):
        if limit is not None:
            given = bound.bind(limit if isinstance(limit, str) else json.dumps(limit))
            tests.append(sql.SQL("{} {} {}::{}").format(value, sql.SQL(operator), given, cast))
    return _all(tests)


def _column_equals(column: Column, values: Sequence[Scalar], bound: _Parameters) -> sql.Composable:
    held = column_sql(column.name)
    match column.category:
        case "N":
            numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
            if not numbers:
                return NEVER
            whole = [int(value) for value in numbers if float(value).is_integer() and abs(value) < 2**62]
            if len(whole) == len(numbers) and column.type in {"int2", "int4", "int8"}:
                return sql.SQL("{} = any({}::bigint[])").format(held, bound.bind(whole))
            return sql.SQL("{}::numeric = any({}::numeric[])").format(held, bound.bind(numbers))
        case "B":
            truths = [value for value in values if isinstance(value, bool)]
            return sql.SQL("{} = any({}::boolean[])").format(held, bound.bind(truths)) if truths else NEVER
        case "D":
            moments = [moment for value in values if (moment := _moment(value)) is not None]
            if not moments:
                return NEVER
            return sql.SQL("{}::timestamptz = any({}::timestamptz[])").format(held, bound.bind(moments))
        case category:
            texts = [value for value in values if isinstance(value, str)]
            if not texts:
                return NEVER
            cast = sql.SQL("" if category == "S" else "::text")
            return sql.SQL("{}{} = any({}::text[])").format(held, cast, bound.bind(texts))


def _column_range(
    column: Column, at_least: str | float | None, at_most: str | float | None, bound: _Parameters, path: str
) -> sql.Composable:
    held = column_sql(column.name)
    given: Callable[[object], object | None]
    match column.category:
        case "N":
            left, cast, given = sql.SQL("{}::numeric").format(held), "numeric", _number
        case "D":
            left, cast, given = sql.SQL("{}::timestamptz").format(held), "timestamptz", _moment
        case "B":
            raise InvalidInput(path, f"the column {column.name!r} holds truth values, which have no range")
        case _:
            left, cast, given = sql.SQL('{}::text collate "C"').format(held), "text", _text
    tests: list[sql.Composable] = []
    for operator, limit in ((">=", at_least), ("<=", at_most)):
        if limit is None:
            continue
        bound_value = given(limit)
        if bound_value is None:
            return NEVER
        tests.append(sql.SQL("{} {} {}::{}").format(left, sql.SQL(operator), bound.bind(bound_value), sql.SQL(cast)))
    return _all(tests)


def _number(value: object) -> object | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: object) -> object | None:
    return value if isinstance(value, str) else None


def _moment(value: object) -> dt.datetime | None:
    """The moment that an ISO 8601 text names, in UTC where it has no offset; None for any other value.

    Read here, since Python and PostgreSQL read some forms differently.
    """
    if not isinstance(value, str):
        return None
    try:
        found = dt.datetime.fromisoformat(value)
        return found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return None
