"""What is done about a verdict, collection by collection; and verdicts of texts that were not scanned at ingest.

The stored verdict is what the policy made of the scan, so that retrieval has nothing to decide: it leaves quarantined
chunks out, and a prompt cuts what a neutralised one hides.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from standard.sandbox.scan import VERDICTS, Scanner, spliced

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from standard.corpus.scan import Scan, ScanVerdict, Verdict
    from standard.domain.passage import Passage


@dataclass(frozen=True, slots=True)
class ScanPolicy:
    """Which action each verdict leads to; what could not be read (`oversize`, `nesting`, …) is always quarantined."""

    flag: Verdict = "flag"
    neutralise: Verdict = "neutralise"
    quarantine: Verdict = "quarantine"

    def apply(self, verdict: ScanVerdict) -> ScanVerdict:
        """The verdict as it is to be stored."""
        if verdict.verdict == "pass" or not _UNREAD.isdisjoint(verdict.techniques):
            return verdict
        action: Verdict = getattr(self, verdict.verdict)
        return verdict if action == verdict.verdict else replace(verdict, verdict=action)


_UNREAD = frozenset({"scan-failed", "oversize", "nesting"})
POLICIES: Mapping[str, ScanPolicy] = {
    "standard": ScanPolicy(),
    "strict": ScanPolicy(flag="quarantine", neutralise="quarantine"),
    "audit": ScanPolicy(neutralise="flag", quarantine="flag"),
}
"""Policies by name. strict: nothing doubtful is delivered. audit: everything is, and recorded."""


def policed(scan: Scan, policy: ScanPolicy) -> Scan:
    """A scanner whose verdicts have been through a policy: what ingest is given."""

    def judged(title: str, text: str) -> ScanVerdict:
        return policy.apply(scan(title, text))

    return judged


class ScanCache:
    """Verdicts of texts without a stored one (foreign tables), by content, up to a number; the oldest go first."""

    def __init__(self, scan: Scan, version: str, most: int = 20_000) -> None:
        self._scan = scan
        self._version = version
        self._most = most
        self._known: OrderedDict[tuple[str, str, str], ScanVerdict] = OrderedDict()

    def verdict(self, passage: Passage) -> ScanVerdict:
        """The verdict of a passage; scanned now where its text is new. At most some milliseconds."""
        key = (self._version, passage.title.content_hash(), passage.text.content_hash())
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        verdict = self._scan(passage.title.raw, passage.text.raw)
        self._known[key] = verdict
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return verdict

    def __len__(self) -> int:
        return len(self._known)


@dataclass(frozen=True, slots=True)
class Admitted:
    """Passages that may be shown, in their order, and those withheld.

    `findings` are (passage id, verdict, techniques) of all that was not simply passed: for trace and metrics.
    """

    passages: tuple[Passage, ...]
    withheld: tuple[Passage, ...]
    findings: tuple[tuple[str, str, tuple[str, ...]], ...]


def admit(
    passages: Sequence[Passage], scanner: Scanner, stored: Callable[[Passage], ScanVerdict] | None = None
) -> Admitted:
    """Read the verdicts of passages about to enter a prompt, and look at the borders where two of them meet.

    Verdicts are the stored ones, or `stored`'s (a ScanCache for foreign tables). An order spliced over two neighbours
    (in this order, or in their document) flags both.
    """
    verdicts = {item.passage_id: item.verdict for item in passages}
    techniques: dict[str, dict[str, None]] = {}
    if stored is not None:
        for item in passages:
            verdict = stored(item)
            verdicts[item.passage_id] = max(verdict.verdict, item.verdict, key=_severity)
            techniques.setdefault(item.passage_id, {}).update(dict.fromkeys(verdict.techniques))
    for first, second in _neighbours(passages):
        found = spliced(scanner, first.text.raw, second.text.raw)
        if found:
            for item in (first, second):
                verdicts[item.passage_id] = max(verdicts[item.passage_id], "flag", key=_severity)
                techniques.setdefault(item.passage_id, {}).update(dict.fromkeys(("spliced", *found)))
    judged = [
        item if item.verdict == verdicts[item.passage_id] else replace(item, verdict=verdicts[item.passage_id])
        for item in passages
    ]
    return Admitted(
        passages=tuple(item for item in judged if item.verdict != "quarantine"),
        withheld=tuple(item for item in judged if item.verdict == "quarantine"),
        findings=tuple(
            (item.passage_id, item.verdict, tuple(techniques.get(item.passage_id, ())))
            for item in judged
            if item.verdict != "pass"
        ),
    )


def _severity(verdict: str) -> int:
    return [*VERDICTS].index(verdict) if verdict in VERDICTS else len(VERDICTS)


def _neighbours(passages: Sequence[Passage]) -> list[tuple[Passage, Passage]]:
    pairs = {(index, index + 1): None for index in range(len(passages) - 1)}
    places = {(item.document_id, item.position): index for index, item in enumerate(passages)}
    for (document, position), index in places.items():
        following = places.get((document, position + 1))
        if following is not None:
            pairs[index, following] = None
    return [(passages[first], passages[second]) for first, second in pairs]
