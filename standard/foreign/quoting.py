"""Names and constants within statements that have parameters.

Prevents the column called "50%" that breaks every statement: psycopg reads a percent sign in a composed statement as
the beginning of a placeholder, also within a quoted name or constant. Statements with these are to be executed with
parameters, be they empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from psycopg.abc import AdaptContext


class Name(sql.Identifier):
    """A quoted name; several are joined by dots."""

    def as_bytes(self, context: AdaptContext | None = None) -> bytes:
        """Return it as SQL."""
        return super().as_bytes(context).replace(b"%", b"%%")


class Constant(sql.Literal):
    """A quoted constant."""

    def as_bytes(self, context: AdaptContext | None = None) -> bytes:
        """Return it as SQL."""
        return super().as_bytes(context).replace(b"%", b"%%")
