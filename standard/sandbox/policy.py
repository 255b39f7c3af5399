"""What is done about a verdict, collection by collection; and verdicts of texts that were not scanned at ingest.

The stored verdict is what the policy made of the scan, so that retrieval has nothing to decide: it leaves quarantined
chunks out, and a prompt cuts what a neutralised one hides.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from standard.corpus.scan import ScanVerdict
from standard.domain.passage import ScanFinding
from standard.sandbox.scan import VERDICTS, Scanner, spliced

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from standard.corpus.scan import Scan, Verdict
    from standard.domain.passage import Passage


@dataclass(frozen=True, slots=True)
class ScanPolicy:
    """Which action each verdict leads to; what could not be read (`oversize`, `nesting`, …) is always quarantined."""

    name: str = "standard"
    flag: Verdict = "flag"
    neutralise: Verdict = "neutralise"
    quarantine: Verdict = "quarantine"

    def apply(self, verdict: ScanVerdict) -> ScanVerdict:
        """The verdict as it is to be stored."""
        if verdict.verdict == "pass" or not _UNREAD.isdisjoint(verdict.techniques):
            return verdict
        action: Verdict = getattr(self, verdict.verdict)
        return verdict if action == verdict.verdict else replace(verdict, verdict=action)

    def version(self, rules_version: str) -> str:
        """The version under which verdicts are stored: a policy decides them as the rules do."""
        return rules_version if self.name == "standard" else f"{rules_version}+{self.name}"


_UNREAD = frozenset({"scan-failed", "oversize", "nesting"})
POLICIES: Mapping[str, ScanPolicy] = {
    "standard": ScanPolicy(),
    "strict": ScanPolicy("strict", flag="quarantine", neutralise="quarantine"),
    "audit": ScanPolicy("audit", neutralise="flag", quarantine="flag"),
}
"""Policies by name. strict: nothing doubtful is delivered. audit: everything is, and recorded."""


def policed(scan: Scan, policy: ScanPolicy, rules_version: str) -> Scan:
    """A scanner whose verdicts have been through a policy: what ingest is given.

    A scan that fails withholds the passage it failed of, and no other.
    """
    version = policy.version(rules_version)

    def judged(title: str, text: str) -> ScanVerdict:
        try:
            verdict = policy.apply(scan(title, text))
        except Exception as error:  # noqa: BLE001 - a scanner that fails must not let anything pass, nor stop an ingest
            verdict = ScanVerdict("quarantine", ("scan-failed",), f"the scan failed: {type(error).__name__}")
        return replace(verdict, rules_version=version)

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

    `findings` are of all that was not simply passed: for trace and metrics.
    """

    passages: tuple[Passage, ...]
    withheld: tuple[Passage, ...]
    findings: tuple[ScanFinding, ...]


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
        action, found = _border(scanner, first, second)
        if found:
            for item in (first, second):
                verdicts[item.passage_id] = max(verdicts[item.passage_id], action, key=_severity)
                techniques.setdefault(item.passage_id, {}).update(dict.fromkeys(found))
    judged = [
        item
        if item.verdict == verdicts[item.passage_id] and item.passage_id not in techniques
        else replace(
            item,
            verdict=verdicts[item.passage_id],
            techniques=tuple(dict.fromkeys((*item.techniques, *techniques.get(item.passage_id, ())))),
            rules_version=item.rules_version or scanner.version,
        )
        for item in passages
    ]
    return Admitted(
        passages=tuple(item for item in judged if item.verdict != "quarantine"),
        withheld=tuple(item for item in judged if item.verdict == "quarantine"),
        findings=tuple(
            ScanFinding(item.passage_id, item.verdict, item.techniques, item.rules_version or scanner.version)
            for item in judged
            if item.verdict != "pass"
        ),
    )


def _border(scanner: Scanner, first: Passage, second: Passage) -> tuple[str, tuple[str, ...]]:
    """What is found where two passages meet, and what it leads to; both are withheld where one cannot tell."""
    try:
        found = spliced(scanner, first.text.raw, second.text.raw)
    except Exception:  # noqa: BLE001 - a scanner that fails must not let anything pass, nor cost the answer
        return "quarantine", ("scan-failed",)
    return "flag", ("spliced", *found) if found else ()


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
