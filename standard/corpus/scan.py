"""What an injection scanner says of a chunk, and the scanner that says nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["pass", "flag", "neutralise", "quarantine"]


@dataclass(frozen=True, slots=True)
class ScanVerdict:
    """A verdict with its grounds: labels of techniques found, a reason for people, and the version of the rules."""

    verdict: Verdict = "pass"
    techniques: tuple[str, ...] = ()
    reason: str = ""
    rules_version: str = ""


Scan: TypeAlias = Callable[[str, str], ScanVerdict]
"""Judges a chunk by its document's title and its own text. Called in a worker thread, once a chunk."""

_PASS = ScanVerdict()


def pass_all(title: str, text: str) -> ScanVerdict:  # noqa: ARG001 - the signature of a scanner
    """Let everything pass."""
    return _PASS
