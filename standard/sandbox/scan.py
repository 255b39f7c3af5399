"""Prevents: a poisoned passage that nobody was told about.

The scan is triage: it flags by default and takes a passage out only on structural evidence. What keeps an obedient
model harmless is the structure (render, fixed tools, output guard), which does not depend on any verdict.

- pass: nothing was found.
- flag: an order to the model in plain sight. Delivered unchanged, recorded.
- neutralise: an order where no reader sees it (encoded, commented out, hidden by style). That part is cut out.
- quarantine: an order behind a forged delimiter or template token, or spelled in invisible signs; or the scan failed.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from standard.corpus.scan import ScanVerdict, Verdict
from standard.sandbox.canonicalise import canonicalise
from standard.sandbox.directives import Finding, RuleBook, directives, read_directives, rule_book, rules_of, sentences
from standard.sandbox.encodings import LONGEST_RUN, NestedTooDeep, RunTooLong, find_encoded, unescape
from standard.sandbox.hidden import unseen_text
from standard.sandbox.lexicon import Lexicon, load_lexicon, normalise
from standard.sandbox.reading import Reading, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LONGEST = 1_048_576
"""Longest text that is scanned, in code points; a longer one is quarantined unread."""
VERDICTS: tuple[Verdict, ...] = ("pass", "flag", "neutralise", "quarantine")
TECHNIQUES = (
    "override", "prompt-leak", "persona", "addressed", "exfiltration", "tool-call", "forced-output", "concealment",
    "memory", "decode-and-obey", "split", "false-authority", "forged-turn", "forged-delimiter", "template-token",
    "hidden-text", "encoded", "unseen", "spliced", "nesting", "oversize", "scan-failed",
)  # fmt: skip
"""Every technique a verdict may name: label values of pointsman_injection_flags_total."""
_TOO_DEEP = "encodings are nested deeper than the scan looks"
_INVISIBLE = frozenset({"tag-characters", "variation-selectors", "zero-width", "bidi"})
_DECIDING = ("scan.py", "reading.py", "encodings.py", "folding.py", "hidden.py", "directives.py", "lexicon.py",
             "readable.py", "canonicalise.py", "data/lexicon.json", "data/rules.txt")  # fmt: skip


@dataclass(frozen=True, slots=True)
class ScanReport:
    """What the scan says of one document or passage.

    `canonical` is the text as the scanner read it, with what was hidden or encoded spelled out; empty where the scan
    gave up. `delivered` is what a prompt would hold. `evidence` names the rules that spoke (line, technique), for
    evaluation.
    """

    id: str
    verdict: Verdict
    techniques: tuple[str, ...]
    reason: str
    rules_version: str
    canonical: str
    delivered: str
    evidence: tuple[tuple[int, str], ...] = ()


@dataclass(slots=True)
class _Evidence:
    verdict: Verdict = "pass"
    techniques: dict[str, None] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    rules: dict[tuple[int, str], None] = field(default_factory=dict)

    def add(self, verdict: Verdict, technique: str, reason: str, findings: Iterable[Finding] = ()) -> None:
        if VERDICTS.index(verdict) > VERDICTS.index(self.verdict):
            self.verdict = verdict
        self.techniques[technique] = None
        if reason not in self.reasons:
            self.reasons.append(reason)
        self.rules.update({(finding.rule, finding.technique): None for finding in findings})


@dataclass(frozen=True, slots=True)
class Scanner:
    """Rules and lexicon, read once. Safe to share between threads; what it remembers changes no verdict."""

    lexicon: Lexicon
    rules: RuleBook
    version: str
    borders: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)
    edges: dict[str, _Edge] = field(default_factory=dict, compare=False, repr=False)

    def report(self, identity: str, title: str, text: str) -> ScanReport:
        """Scan a document or passage. Never raises: what cannot be scanned is quarantined."""
        if len(title) + len(text) > LONGEST:
            reason = f"longer than {LONGEST} code points: not scanned"
            return ScanReport(identity, "quarantine", ("oversize",), reason, self.version, "", "")
        try:
            return self._report(identity, title, text)
        except NestedTooDeep:
            return ScanReport(identity, "quarantine", ("nesting",), _TOO_DEEP, self.version, "", "")
        except RunTooLong:
            reason = f"an encoded stretch of more than {LONGEST_RUN} code points: not looked into"
            return ScanReport(identity, "quarantine", ("oversize",), reason, self.version, "", "")
        except Exception as error:  # noqa: BLE001 - a scanner that fails must not let anything pass
            reason = f"the scan failed: {type(error).__name__}"
            return ScanReport(identity, "quarantine", ("scan-failed",), reason, self.version, "", "")

    def __call__(self, title: str, text: str) -> ScanVerdict:
        """The verdict alone: what is stored beside a chunk."""
        report = self.report("", title, text)
        return ScanVerdict(report.verdict, report.techniques, report.reason, report.rules_version)

    def directives(self, text: str) -> list[Finding]:
        """Directives in text that is canonical already."""
        return read_directives(normalise(unescape(text)), self.lexicon, self.rules)

    def concepts(self, text: str) -> frozenset[str]:
        """Concepts of the words of a canonical text, and marks in it as `is_possible` takes them.

        A verb's concept counts as an order too: what precedes it may change.
        """
        tokens = self.lexicon.tokens(normalise(unescape(text)))
        found = {concept for token in tokens for concept in token.concepts}
        marks = {f"~{token.kind.upper()}" for token in tokens}
        return frozenset(found | marks | {f"!{concept}" for concept in found})

    def _report(self, identity: str, title: str, text: str) -> ScanReport:
        reading = read(text, self.lexicon.vocabulary)
        headed = read(title, self.lexicon.vocabulary) if title else None
        evidence = _Evidence()
        if reading.given_up or (headed is not None and headed.given_up):
            evidence.add("quarantine", "nesting", _TOO_DEEP)
        else:
            whole = reading.canonical if headed is None else f"{headed.canonical}\n\n{reading.canonical}"
            text = normalise(unescape(whole))
            said = sentences(self.lexicon.tokens(text), text)
            meant = [finding for finding in directives(said, self.rules) if not finding.reported]
            self._judge_plain(meant, evidence)
            # it only talks about such orders
            about = not meant and sum(bool(sentence.about_attacks) for sentence in said) >= 2
            for part in (reading,) if headed is None else (headed, reading):
                self._judge_revealed(part, evidence, about=about)
            self._judge_unseen(reading.delivered, evidence, about=about)
        return ScanReport(
            id=identity,
            verdict=evidence.verdict,
            techniques=tuple(evidence.techniques),
            reason="; ".join(evidence.reasons[:6]),
            rules_version=self.version,
            canonical=reading.canonical,
            delivered=reading.delivered,
            evidence=tuple(evidence.rules),
        )

    def _judge_plain(self, meant: Sequence[Finding], evidence: _Evidence) -> None:
        for finding in meant:
            if finding.after == "template":
                evidence.add("quarantine", "template-token", "an order behind a chat template's token", [finding])
            elif finding.after == "delimiter":
                evidence.add("quarantine", "forged-delimiter", "an order behind a forged delimiter", [finding])
            evidence.add("flag", finding.technique, f"an order to the model: {finding.technique}", [finding])

    def _judge_revealed(self, reading: Reading, evidence: _Evidence, *, about: bool) -> None:
        encoded = {item.text for item in find_encoded(reading.delivered)} if reading.revealed else set()
        for way, said in reading.revealed:
            orders = [finding for finding in self.directives(said) if not finding.reported]
            if way in _INVISIBLE:
                if orders:
                    evidence.add("quarantine", "hidden-text", f"an order in invisible signs ({way})", orders)
                elif len(said.split()) >= 2 and way != "bidi":
                    evidence.add("flag", "hidden-text", f"text in invisible signs ({way})")
            elif orders and not about:
                verdict: Verdict = "neutralise" if said in encoded else "quarantine"
                evidence.add(verdict, "encoded", f"an encoded order ({way})", orders)

    def _judge_unseen(self, delivered: str, evidence: _Evidence, *, about: bool) -> None:
        if about:
            return
        for piece in unseen_text(delivered):
            orders = [finding for finding in self.directives(piece.text) if not finding.reported]
            if orders:
                evidence.add("neutralise", "unseen", f"an order that a page does not show ({piece.kind})", orders)


@cache
def shipped_scanner() -> Scanner:
    """The scanner with the rules of this release. Its version is a hash of all that decides a verdict."""
    root = files("standard.sandbox")
    digest = hashlib.sha256()
    for name in _DECIDING:
        digest.update(root.joinpath(*name.split("/")).read_bytes())
    rules = rules_of(root.joinpath("data", "rules.txt").read_text("utf-8").splitlines())
    return Scanner(load_lexicon(), rule_book(rules), digest.hexdigest()[:12])


def scan_document(identity: str, title: str, text: str) -> ScanReport:
    """Scan one document with the shipped rules: what `pointsman scan` prints."""
    return shipped_scanner().report(identity, title, text)


def scan_chunk(title: str, text: str) -> ScanVerdict:
    """Scan one chunk with the shipped rules: the `Scan` that ingest takes."""
    return shipped_scanner()(title, text)


_REMOVED = "[removed]"


def cut_unseen(text: str) -> str:
    """`text` without what a reader does not see or cannot read: comments, hidden elements, encoded prose.

    For passages whose verdict is neutralise. Needs no rules, so it holds whatever the scan overlooked. Nothing is left
    where encodings are nested too deep, or longer than can be looked into.
    """
    delivered = canonicalise(text)
    for _ in range(4):
        try:
            encoded = find_encoded(delivered)
        except (NestedTooDeep, RunTooLong):
            return ""
        spans = [(item.start, item.end) for item in encoded] + [
            (item.start, item.end) for item in unseen_text(delivered)
        ]
        spans.sort()
        if not spans:
            return delivered
        pieces: list[str] = []
        at = 0
        for start, end in spans:
            if start >= at:
                pieces += [delivered[at:start], _REMOVED]
            at = max(at, end)
        delivered = "".join(pieces) + delivered[at:]
    return ""


EDGE = 240
"""Code points on either side of the border of two passages that are read together."""
MOST_BORDERS = 8192
"""Borders that are remembered, some 10 MB; then all are forgotten at once."""
_ENDS = re.compile(r"[.!?。！？…][\"'”’)\]]*\s*\Z")
_BEGINS = re.compile(r"\s*[^\sa-z/=+&%\\\[(\u00ad-\u02ff]")
_RUNS_ON = re.compile(r"[A-Za-z0-9+/=_%&\\-]{16}\Z")


def spliced(scanner: Scanner, first: str, second: str) -> tuple[str, ...]:
    """Techniques of orders that only show where two passages meet, whichever way they are joined; mostly none.

    Both texts are raw. Cheap where the first ends with a sentence: chunks are cut there, a splice is not. Other borders
    are remembered, since passages that are found together are found together again.
    """
    tail, head = first[-EDGE:], second[:EDGE]
    if not tail or not head:
        return ()
    if _ENDS.search(tail) and _BEGINS.match(head) and not _RUNS_ON.search(tail.rstrip("=.!?:;")):
        return ()
    border = (tail, head)
    known = scanner.borders.get(border)
    if known is None:
        known = _border(scanner, tail, head) if _may_join(scanner, tail, head) else ()
        if len(scanner.borders) >= MOST_BORDERS:
            scanner.borders.clear()
        scanner.borders[border] = known
    return known


_JOINT = 40
"""Code points on either side of a border in which a word or a phrase may be cut in two."""
_LETTERS = re.compile(r"(?:\b\w\W{1,3}){3}\W*\Z"), re.compile(r"\W*(?:\w\W{1,3}){3}")


@dataclass(frozen=True, slots=True)
class _Edge:
    """Concepts of the beginning or end of a passage, verbs as orders too; whether anything in it is disguised."""

    concepts: frozenset[str]
    disguised: bool


def _edge(scanner: Scanner, text: str) -> _Edge:
    known = scanner.edges.get(text)
    if known is None:
        reading = read(text, scanner.lexicon.vocabulary)
        strange = bool(reading.disguises or reading.revealed or reading.given_up)
        known = _Edge(scanner.concepts(reading.canonical), strange)
        if len(scanner.edges) >= MOST_BORDERS:
            scanner.edges.clear()
        scanner.edges[text] = known
    return known


def _may_join(scanner: Scanner, tail: str, head: str) -> bool:
    """Whether the concepts of both sides together could make an order, or something disguised may cross the border."""
    first, second = _edge(scanner, tail), _edge(scanner, head)
    if first.disguised or second.disguised or _RUNS_ON.search(tail):
        return True
    if _LETTERS[0].search(tail) or _LETTERS[1].match(head):
        return True
    ends, begins = tail[-_JOINT:], head[:_JOINT]
    crossing = scanner.concepts(ends + begins) | scanner.concepts(f"{ends} {begins}")
    return scanner.rules.is_possible(first.concepts | second.concepts | crossing)


def _border(scanner: Scanner, tail: str, head: str) -> tuple[str, ...]:
    joined = _orders(scanner, tail + head) | _orders(scanner, f"{tail} {head}")
    if joined:
        joined -= _orders(scanner, tail) | _orders(scanner, head)
    return tuple(dict.fromkeys(technique for technique, _ in sorted(joined, key=lambda found: found[1])))


def _orders(scanner: Scanner, text: str) -> set[tuple[str, int]]:
    """Techniques and rules of the orders in a raw text."""
    said = read(text, scanner.lexicon.vocabulary).canonical
    return {(finding.technique, finding.rule) for finding in scanner.directives(said) if not finding.reported}
