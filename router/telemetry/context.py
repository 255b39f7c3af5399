"""W3C trace context (https://www.w3.org/TR/trace-context/) as callers send it: read strictly, passed on unchanged.

What goes wrong without it: a header that is none makes a broken trace, or carries something else to every service that
is called from here. Baggage is neither read nor passed on: it may hold anything of anybody, and the model's server is
often somebody else's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from standard.spans import Place

if TYPE_CHECKING:
    from collections.abc import Iterable

_PARENT: Final = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE: Final = re.compile(r"[\x20-\x7e]{1,512}")
_MEMBERS: Final = 32


@dataclass(frozen=True, slots=True)
class Parent:
    """The caller's span. `state` is its tracestate, "" where there is none; ids are lower-case hex."""

    trace_id: str
    span_id: str
    sampled: bool
    state: str = ""

    @property
    def traceparent(self) -> str:
        """As it is sent on, in the version that is known here."""
        return traceparent(self.trace_id, self.span_id, sampled=self.sampled)

    def place(self) -> Place:
        """The place of a gateway that records nothing: what it calls sees the caller's span."""
        headers = {"traceparent": self.traceparent}
        if self.state:
            headers["tracestate"] = self.state
        return Place(self.trace_id, self.span_id, headers)


def traceparent(trace_id: str, span_id: str, *, sampled: bool) -> str:
    """A header's value."""
    return f"00-{trace_id}-{span_id}-{'01' if sampled else '00'}"


def read_parent(parents: list[str], states: Iterable[str] = ()) -> Parent | None:
    """The caller's span by its headers; None where there is none, or none that is valid.

    Several traceparents are none; tracestates are joined in their order, and left out where they are not as they
    should be.
    """
    if len(parents) != 1:
        return None
    found = _PARENT.fullmatch(parents[0].strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    state = ",".join(part.strip() for part in states if part.strip())
    if not _STATE.fullmatch(state) or state.count(",") >= _MEMBERS:
        state = ""
    return Parent(trace_id, span_id, bool(int(flags, 16) & 1), state)
