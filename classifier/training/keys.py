"""What stands for a question where its text may not: a number that only who has the question can make."""

from __future__ import annotations

import hashlib

from classifier.neutral import neutral


def question_key(question: str) -> str:
    """Return 16 hex digits of the sha256 of the question's neutral form."""
    return hashlib.sha256(neutral(question).encode("utf-8", "replace")).hexdigest()[:16]


def key_number(key: str) -> int:
    """Return the key as a number below 2**64, for arrays."""
    return int(key, 16)
