"""What is kept of one answered question, and the file that an interrupted measurement goes on from.

The ledger is JSON lines: the first tells what is measured, each further one is a record, written and flushed as soon as
its question is done. A line that a crash cut off is dropped; a ledger of another measurement is refused.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

from standard.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

ASKED, SINGLE_SHOT = "asked", "single-shot"
"""Arms: as the measurement was asked for, and the single-shot answer that it is compared with."""
LEDGER = "answers.jsonl"


def budget_arm(steps: int) -> str:
    """The arm of the agentic route with so many steps."""
    return f"steps-{steps}"


@dataclass(frozen=True, slots=True)
class Record:
    """One question through one arm.

    `acquired` names the document of each passage in order of acquisition (for a standard answer those of its one
    search, further down than was shown); `shown` is how many of them the answer could rest on. `support` and `cited`
    are documents too. `holds_answer`: a gold answer stands in a shown passage (None: none known, or yes/no).
    `says_answer`, `em`, `f1` judge the answer (None: no gold answer). `guards` counts refusals and stops but the
    budgets'. `sufficiency` is the last judgement's score, `evidence` the extractive model's over the shown passages.
    """

    set: str
    id: str
    arm: str
    answerable: bool
    route: str
    outcome: str
    stop_reason: str
    support: tuple[tuple[str, ...], ...] = ()
    acquired: tuple[str, ...] = ()
    shown: int = 0
    cited: tuple[str, ...] = ()
    holds_answer: bool | None = None
    says_answer: bool | None = None
    em: float | None = None
    f1: float | None = None
    steps: int = 1
    actions: Mapping[str, int] = field(default_factory=dict)
    guards: Mapping[str, int] = field(default_factory=dict)
    escalated: bool = False
    llm_calls: int = 0
    billed_tokens: int = 0
    retrieved_tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0
    sufficiency: float | None = None
    evidence: float | None = None
    answer: str = ""

    @property
    def abstained(self) -> bool:
        """Did the run end without an answer?"""
        return self.outcome == "unanswerable"

    @property
    def key(self) -> tuple[str, str, str, bool]:
        """What the record is of; an unanswerable question may bear the id of an answerable one."""
        return (self.set, self.id, self.arm, self.answerable)


_FIELDS = frozenset(one.name for one in fields(Record))


def record_of(row: Mapping[str, Any]) -> Record:
    """Read a record from its JSON form. Raises ValueError or TypeError where it is none."""
    if set(row) - _FIELDS:
        raise ValueError(f"unknown keys {sorted(set(row) - _FIELDS)}")
    tuples = {
        "support": tuple(tuple(choices) for choices in row.get("support", ())),
        "acquired": tuple(row.get("acquired", ())),
        "cited": tuple(row.get("cited", ())),
    }
    return Record(**{**row, **tuples})


class Ledger:
    """The records of a measurement, in memory and, with a folder, in its file. Use as a context manager.

    `measured` describes the measurement; a file that begins with another description is refused.
    """

    def __init__(self, folder: Path | None, measured: Mapping[str, Any]) -> None:
        self._path = None if folder is None else folder / LEDGER
        self._measured = json.loads(json.dumps(measured))
        self._file: Any = None
        self.records: dict[tuple[str, str, str, bool], Record] = {}

    def __enter__(self) -> Self:
        """Read what there is. Raises FailedPrecondition where it is of another measurement, OSError."""
        if self._path is None:
            return self
        kept = self._read(self._path) if self._path.exists() else []
        # Written anew, so that the next line never goes on where a crash cut one off.
        beside = self._path.with_suffix(".part")
        lines = [json.dumps(self._measured), *(json.dumps(asdict(record)) for record in kept)]
        beside.write_text("\n".join(lines) + "\n", encoding="utf-8")
        beside.replace(self._path)
        self.records = {record.key: record for record in kept}
        self._file = self._path.open("a", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, record: Record) -> None:
        """Keep a record."""
        self.records[record.key] = record
        if self._file is not None:
            self._file.write(json.dumps(asdict(record)) + "\n")
            self._file.flush()

    def _read(self, path: Path) -> list[Record]:
        lines = path.read_text(encoding="utf-8").splitlines()
        try:
            begun = json.loads(lines[0]) if lines else self._measured
        except ValueError:
            begun = None
        if begun != self._measured:
            raise FailedPrecondition(
                f"{path} holds another measurement ({_difference(begun, self._measured)}); name another folder, or "
                "remove the file"
            )
        records = []
        for number, line in enumerate(lines[1:], start=2):
            try:
                records.append(record_of(json.loads(line)))
            except (ValueError, TypeError) as error:
                if number == len(lines):
                    break  # cut off in the middle: this question is asked again
                raise FailedPrecondition(f"{path}:{number} is no record ({error}); remove the line") from error
        return records


def _difference(there: object, here: Mapping[str, Any]) -> str:
    if not isinstance(there, dict):
        return "its first line does not say which"
    keys = sorted(key for key in {*there, *here} if there.get(key) != here.get(key))
    return "; ".join(f"{key}: {there.get(key)!r} there, {here.get(key)!r} here" for key in keys[:3])
