"""Where a question falls among all, the same wherever and whenever it is asked: what percentages are compared with."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.decide import CanaryBy
    from standard.domain.question import Question


def place_of(*names: str) -> float:
    """Map names to 0 <= place < 100, uniformly and alike on every replica and release."""
    digest = hashlib.sha256("\x00".join(names).encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 * 100.0


def canary_place(question: Question, by: CanaryBy) -> float:
    """The place of a question's session, or of its tenant.

    A question without a session is one of its own, by its request id, so that asking again does not draw again.
    """
    tenant = question.scope.tenant
    if by.value == "tenant":
        return place_of("tenant", tenant)
    return place_of("session", tenant, question.session_id or question.request_id)


def shadow_place(question: Question) -> float:
    """The place of a question among those that may be answered aside."""
    return place_of("shadow", question.scope.tenant, question.request_id)
