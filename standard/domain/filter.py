"""Filters over passage metadata: equality, membership, range, conjunction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Scalar: TypeAlias = str | float | bool
"""A metadata value that can be compared: text, number (as float) or truth value."""


@dataclass(frozen=True, slots=True)
class Eq:
    """The metadata key has exactly this value."""

    key: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class In:
    """The metadata key has one of these values (1 to 100)."""

    key: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """The metadata key lies between the bounds, each inclusive and optional; text compares in code point order."""

    key: str
    at_least: str | float | None = None
    at_most: str | float | None = None


@dataclass(frozen=True, slots=True)
class And:
    """Every part holds."""

    parts: tuple[Filter, ...]


Filter: TypeAlias = Eq | In | Range | And
