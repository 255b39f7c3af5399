"""How well the injection scan tells attacks from text that only looks like them: `pointsman eval injection`.

DIR holds attacks.jsonl (text, source, technique, stratum) and benign.jsonl (text, source, kind).

The scan has no learned weights; its rules were written by people who had seen attacks like these. So the held-out
figures are made by taking rules away: for each family of attack sources and each group of benign kinds, only those
rules count that attacks of *other* families support and that *other* benign kinds do not trip. A rule that knows one
source alone is worth nothing there.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from standard.domain.errors import InvalidInput
from standard.sandbox.scan import Scanner, ScanReport, shipped_scanner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

STRATA = {"overt": "overt_recall", "obfuscated": "obfuscated_recall", "plain-task": "plain_recall"}
"""Strata of attacks and the names of their figures. Plain-task ones read like any request in a document."""
FEWEST_ROWS = 50
"""Benign kinds with fewer rows are pooled."""
GROUPS = 5
LEAST_SUPPORT = 1
MOST_FALSE = 0.003
"""A rule that flags a larger share of the benign kinds at hand does not count."""


@dataclass(frozen=True, slots=True)
class Row:
    """One text: `group` is its family of sources (attacks) or its kind (benign); `label` its stratum or kind."""

    id: str
    text: str
    group: str
    label: str


@dataclass(frozen=True, slots=True)
class _Scanned:
    row: Row
    report: ScanReport
    rules: frozenset[int]
    seconds: float

    def flagged_by(self, active: frozenset[int] | None) -> bool:
        """Whether these rules flag it; what needs no rule (nesting, text in invisible signs) always counts."""
        if active is None or (self.report.verdict != "pass" and not self.rules):
            return self.report.verdict != "pass"
        return not self.rules.isdisjoint(active)


def evaluate_injection(
    data: Path, *, scanner: Scanner | None = None, progress: Callable[[str], None] | None = None
) -> dict[str, object]:
    """Scan every row of DIR and return the figures, fractions 0-1, times in seconds of one core.

    `held_out`: recalls and false flags as the module says; `shipped`: the same with all rules; `kinds.<kind>`: shares
    flagged and quarantined by the shipped rules, and rows. Raises InvalidInput where a file is missing or a row is bad.
    """
    scanner = scanner or shipped_scanner()
    say = progress or (lambda _: None)
    attacks = _scan_all(scanner, read_rows(data / "attacks.jsonl", ("source", "stratum"), family_of))
    say(f"{len(attacks)} attacks scanned")
    benign = _scan_all(scanner, _pooled(read_rows(data / "benign.jsonl", ("kind", "kind"), str)))
    say(f"{len(benign)} benign texts scanned")
    seconds = sorted(item.seconds for item in (*attacks, *benign))
    return {
        "rules_version": scanner.version,
        "rows": {"attacks": len(attacks), "benign": len(benign)},
        "held_out": held_out(attacks, benign),
        "shipped": _figures([(item, item.flagged_by(None)) for item in attacks], _share(benign)),
        "kinds": _kinds(benign),
        "verdicts": dict(Counter(item.report.verdict for item in attacks)),
        "benign_canonical_changed": sum(_changed(item.report) for item in benign) / max(len(benign), 1),
        "scan_seconds": {
            "p50": seconds[len(seconds) // 2],
            "p99": seconds[min(len(seconds) - 1, len(seconds) * 99 // 100)],
        },
    }


def family_of(source: str) -> str:
    """Sources that were made from one another count as one: its name up to the first blank, bracket or colon."""
    return re.split(r"[ (:]", source, maxsplit=1)[0]


def read_rows(path: Path, fields: tuple[str, str], group: Callable[[str], str]) -> list[Row]:
    """Read a JSONL file; `fields` name what becomes group and label. Raises InvalidInput naming file and line."""
    if not path.is_file():
        raise InvalidInput("data", f"no file {path}")
    rows: list[Row] = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                raw = json.loads(line)
                text, first, second = raw["text"], raw[fields[0]], raw[fields[1]]
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidInput("data", f"{path.name} line {number}: {type(error).__name__}: {error}") from None
            if not all(isinstance(value, str) for value in (text, first, second)):
                raise InvalidInput("data", f"{path.name} line {number}: text, {fields[0]} and {fields[1]} must be text")
            rows.append(Row(str(raw.get("id", number)), text, group(first), second))
    if not rows:
        raise InvalidInput("data", f"{path} is empty")
    return rows


def _pooled(rows: Sequence[Row]) -> list[Row]:
    sizes = Counter(row.group for row in rows)
    return [row if sizes[row.group] >= FEWEST_ROWS else Row(row.id, row.text, "pooled", row.label) for row in rows]


def _scan_all(scanner: Scanner, rows: Iterable[Row]) -> list[_Scanned]:
    scanned = []
    for row in rows:
        started = time.thread_time()
        report = scanner.report(row.id, "", row.text)
        seconds = time.thread_time() - started
        scanned.append(_Scanned(row, report, frozenset(line for line, _ in report.evidence), seconds))
    return scanned


def held_out(attacks: Sequence[_Scanned], benign: Sequence[_Scanned]) -> dict[str, object]:
    """Figures with whole families of attack sources and whole benign kinds held out from the choice of rules."""
    families = sorted({item.row.group for item in attacks})
    kinds = sorted({item.row.group for item in benign})
    groups = [frozenset(kinds[start::GROUPS]) for start in range(min(GROUPS, len(kinds)))]
    hits: list[tuple[_Scanned, bool]] = []
    false: list[bool] = []
    for family in families:
        for group in groups:
            active = _supported(
                [item for item in attacks if item.row.group != family],
                [item for item in benign if item.row.group not in group],
            )
            hits += [(item, item.flagged_by(active)) for item in attacks if item.row.group == family]
            false += [item.flagged_by(active) for item in benign if item.row.group in group]
    figures = _figures(hits, sum(false) / max(len(false), 1))
    by_source: dict[str, list[bool]] = defaultdict(list)
    for item, hit in hits:
        if item.row.label != "plain-task":
            by_source[item.row.group].append(hit)
    figures["sources"] = {family: sum(found) / len(found) for family, found in sorted(by_source.items())}
    return figures


def _supported(attacks: Sequence[_Scanned], benign: Sequence[_Scanned]) -> frozenset[int]:
    """Rules that these attacks support and these benign texts do not trip."""
    support = Counter(rule for item in attacks if item.row.label != "plain-task" for rule in item.rules)
    false = Counter(rule for item in benign for rule in item.rules)
    return frozenset(
        rule
        for rule, count in support.items()
        if count >= LEAST_SUPPORT and false[rule] <= MOST_FALSE * len(benign) and false[rule] < count
    )


def _figures(hits: Sequence[tuple[_Scanned, bool]], benign_flagged: float) -> dict[str, object]:
    figures: dict[str, object] = {}
    for stratum, name in STRATA.items():
        found = [hit for item, hit in hits if item.row.label == stratum]
        figures[name] = sum(found) / len(found) if found else None
    figures["benign_flagged"] = benign_flagged
    return figures


def _share(benign: Sequence[_Scanned]) -> float:
    return sum(item.flagged_by(None) for item in benign) / max(len(benign), 1)


def _kinds(benign: Sequence[_Scanned]) -> dict[str, dict[str, float | int]]:
    kinds: dict[str, list[_Scanned]] = defaultdict(list)
    for item in benign:
        kinds[item.row.group].append(item)
    return {
        kind: {
            "flagged": sum(item.report.verdict != "pass" for item in items) / len(items),
            "quarantined": sum(item.report.verdict == "quarantine" for item in items) / len(items),
            "rows": len(items),
        }
        for kind, items in sorted(kinds.items())
    }


def _changed(report: ScanReport) -> bool:
    return report.canonical != report.delivered
