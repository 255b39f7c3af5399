"""Are corpus-grounded questions what they claim? Run this before trusting any figure trained on them.

A question labelled `complex` that one document answers, a range that points beside its fact, or a label that the length
or a cue word gives away, would teach the evidence model something false and look excellent while doing so. The
documents are other people's and stay outside the repository, so the questions carry character ranges instead of
quotes; only this script, with the corpus at hand, can tell whether those ranges still hold what they should.

    python classifier/data/check_collections.py NAME --corpus FILE           # exit status 1 when a rule is broken
    python classifier/data/check_collections.py NAME --corpus FILE --review  # prints every range beside its question
    python classifier/data/check_collections.py NAME --corpus FILE --json

NAME is a folder in `collections/` with `questions.jsonl`, `questions_unanswerable.jsonl` and `documents.jsonl`
({"id", "path", "sha256", "characters"}: which text the ranges count in). FILE holds one document a line
({"id", "title", "text"}). Ranges are half-open and count Unicode code points of `text`.

A question: {"id", "question", "label": "simple" | "complex", "answers", "supporting_ids", "supporting_paths", "hops",
"type", "evidence": [{"document_id", "start", "end"}]}, optionally "alt_supporting_ids" {id: [stand-ins]}, "bridge" (the
thing that links the documents and that the question does not name), "derived": true (the answer is computed from the
ranges, put in other words, or yes or no, so that no range holds it). An unanswerable one: {"id", "question", "label",
"why", "nearest_ids"}.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline

from classifier.data.collection_rows import (
    Document,
    Question,
    load_corpus,
    load_questions,
    load_unanswerable,
    rows,
)

COLLECTIONS: Final = Path(__file__).parent / "collections"
LABELS: Final = ("simple", "complex")
TOKEN: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
CUES: Final = frozenset(
    {"and", "which", "who", "same", "other", "compare", "difference", "whose", "our", "all", "any", "before", "after"}
    | {"both", "or", "than", "how", "many", "what", "when"}
)

LENGTH_LIMIT: Final = 0.56  # AUC of the number of words, and of characters, towards either label
LEAN_LIMIT: Final = 2.0  # standard errors between the labels' shares of a cue or opener
SHARED_WORDS: Final = 7  # as many words in a row as no question, answer or reason may share with a document
SECTION_LIMIT: Final = 1_800  # characters: the evidence of a simple question is a passage or a short section
RANGE_LIMIT: Final = 700  # characters: a range names a fact, it does not point at half a document
YES_SHARE: Final = (0.4, 0.6)  # of the yes/no questions of each label
LEAST: Final = {"simple": 55, "complex": 55, "unanswerable": 12}


@dataclass(frozen=True, slots=True)
class Lean:
    """In how many questions of each label a term occurs, and the difference of the shares in standard errors."""

    term: str
    simple: int
    complex: int
    z: float


@dataclass(slots=True)
class Report:
    """What was found: `broken` rules fail the check, `notes` are for the eye."""

    broken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


def words(text: str) -> list[str]:
    """Lower-case words; the apostrophes are made equal."""
    return TOKEN.findall(text.lower().replace("’", "'"))


def plain(text: str) -> str:
    """Words joined by single spaces with one on either side, so that `in` matches on word boundaries."""
    return f" {' '.join(words(text))} "


def check_documents(declared: Path, corpus: Mapping[str, Document], report: Report) -> dict[str, str]:
    """Compare the corpus with the checksums that the ranges were made for; returns paths by document id."""
    paths: dict[str, str] = {}
    for row in rows(declared):
        identity = str(row["id"])
        paths[identity] = str(row["path"])
        document = corpus.get(identity)
        if document is None:
            report.broken.append(f"{identity}: not in the corpus")
        elif hashlib.sha256(document.text.encode()).hexdigest() != row["sha256"]:
            report.broken.append(f"{identity}: the text is another one than the ranges were made for")
    report.broken += [f"{identity}: in the corpus, not in {declared.name}" for identity in corpus.keys() - paths.keys()]
    return paths


def check_shape(q: Question, corpus: Mapping[str, Document], paths: Mapping[str, str]) -> list[str]:
    """Label, ids, paths, hops, bounds of the ranges and how many documents they lie in."""
    broken = []
    held = {e.document_id for e in q.evidence}
    alternatives = {x for v in q.alternatives.values() for x in v}
    named = {*q.supporting_ids, *held, *q.alternatives, *alternatives}
    if unknown := sorted(named - corpus.keys()):
        return [f"unknown documents {unknown}"]
    if q.label not in LABELS:
        broken.append(f"label {q.label!r}")
    if not q.question.strip() or not q.answers or not q.evidence:
        broken.append("no question, answer or evidence")
    if len(set(q.supporting_ids)) != len(q.supporting_ids) or held != set(q.supporting_ids):
        broken.append(f"evidence lies in {sorted(held)}, supporting_ids say {sorted(q.supporting_ids)}")
    if q.supporting_paths != tuple(paths[x] for x in q.supporting_ids):
        broken.append("supporting_paths are not those of supporting_ids")
    if not q.alternatives.keys() <= set(q.supporting_ids) or alternatives & set(q.supporting_ids):
        broken.append("a stand-in must replace a supporting document and be none itself")
    if q.hops != len(q.supporting_ids):
        broken.append(f"hops {q.hops} for {len(q.supporting_ids)} documents")
    for e in q.evidence:
        text = corpus[e.document_id].text
        if not 0 <= e.start < e.end <= len(text):
            broken.append(f"range {e.start}-{e.end} outside {e.document_id} ({len(text)} characters)")
        elif not text[e.start : e.end].strip() or e.end - e.start > RANGE_LIMIT:
            broken.append(f"range {e.document_id} {e.start}-{e.end} is blank or longer than {RANGE_LIMIT}")
    if q.label == "complex" and not 2 <= len(held) <= 4:
        broken.append(f"complex, but its evidence lies in {len(held)} documents")
    if q.label == "simple":
        if len(held) != 1:
            broken.append(f"simple, but its evidence lies in {len(held)} documents")
        elif (span := max(e.end for e in q.evidence) - min(e.start for e in q.evidence)) > SECTION_LIMIT:
            broken.append(f"simple, but its evidence spans {span} characters")
    return broken


def check_facts(q: Question, corpus: Mapping[str, Document]) -> tuple[list[str], list[str]]:
    """Do the ranges hold the answer, and does no single document hold what every range says? (broken, notes)"""
    broken, notes = [], []
    texts = [corpus[e.document_id].text[e.start : e.end] for e in q.evidence]
    held = plain(" | ".join(texts))
    verbatim = [a for a in q.answers if plain(a) in held]
    if not verbatim and not q.derived:
        broken.append(f"no answer of {q.answers} in the ranges: move a range or mark the answer as derived")
    if q.answers[0].lower() in {"yes", "no"} and not q.derived:
        broken.append("yes or no stands in no range: mark the answer as derived")
    if q.bridge and plain(q.bridge) in plain(q.question):
        broken.append(f"the question names its bridge {q.bridge!r}")
    if q.bridge and plain(q.bridge) not in held:
        notes.append(f"no range names the bridge {q.bridge!r}")
    if q.label == "complex":
        for document in corpus.values():
            whole = plain(document.text)
            if all(plain(text) in whole for text in texts):
                broken.append(f"{document.id} holds every range on its own")
    return broken, notes


def shingles(text: str) -> set[tuple[str, ...]]:
    """All runs of `SHARED_WORDS` words."""
    found = words(text)
    return {tuple(found[i : i + SHARED_WORDS]) for i in range(len(found) - SHARED_WORDS + 1)}


def check_overlap(texts: Mapping[str, str], corpus: Mapping[str, Document]) -> list[str]:
    """Texts of ours that share a run of words with a document."""
    index: dict[tuple[str, ...], str] = {}
    for document in corpus.values():
        for run in shingles(document.text):
            index.setdefault(run, document.id)
    return [
        f"{identity}: shares {' '.join(run)!r} with {index[run]}"
        for identity, text in texts.items()
        for run in sorted(shingles(text))
        if run in index
    ]


def check_duplicates(texts: Mapping[str, str], threshold: float = 0.8) -> list[str]:
    """Pairs of questions whose sets of words overlap by at least `threshold` (Jaccard)."""
    sets = [(identity, frozenset(words(text))) for identity, text in texts.items()]
    return [
        f"{a} and {b} are nearly the same question"
        for i, (a, first) in enumerate(sets)
        for b, second in sets[i + 1 :]
        if len(first & second) >= threshold * len(first | second)
    ]


def lean(questions: Sequence[Question], terms: Callable[[Question], Iterable[str]]) -> list[Lean]:
    """Each term by the difference of its share between the labels, most leaning first."""
    size = Counter(q.label for q in questions)
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for q in questions:
        for term in set(terms(q)):
            seen[term][q.label] += 1
    leans = []
    for term, count in seen.items():
        share = (count["simple"] + count["complex"]) / len(questions)
        error = math.sqrt(share * (1 - share) * (1 / size["simple"] + 1 / size["complex"]))
        gap = count["complex"] / size["complex"] - count["simple"] / size["simple"]
        z = gap / error if error else 0.0
        leans.append(Lean(term, count["simple"], count["complex"], round(z, 2)))
    return sorted(leans, key=lambda x: (-abs(x.z), x.term))


def auc(questions: Sequence[Question], score: Callable[[Question], float]) -> float:
    """AUC of a score towards `complex`; 0.5 is a coin."""
    return float(roc_auc_score([q.label == "complex" for q in questions], [score(q) for q in questions]))


def words_probe(questions: Sequence[Question]) -> float:
    """AUC of a bag of words in ten folds: what the wording alone gives away to a model that knows the topics."""
    texts = np.array([" ".join(words(q.question)) for q in questions], dtype=object)
    y = np.array([q.label == "complex" for q in questions])
    scores = np.zeros(len(questions))
    for train, test in StratifiedKFold(10, shuffle=True, random_state=0).split(texts, y):
        model = make_pipeline(CountVectorizer(binary=True, min_df=2), LogisticRegression(C=0.1, max_iter=2000))
        model.fit(texts[train], y[train])
        scores[test] = model.predict_proba(texts[test])[:, 1]
    return float(roc_auc_score(y, scores))


def check_balance(questions: Sequence[Question], report: Report) -> None:
    """Lengths, cue words, openers and yes/no answers over the labels."""
    counts = Counter(q.label for q in questions)
    if not all(counts[label] for label in LABELS):
        report.broken.append("questions of both labels are needed")
        return
    lengths = {
        "words": auc(questions, lambda q: len(q.question.split())),
        "characters": auc(questions, lambda q: len(q.question)),
    }
    report.figures["length_auc"] = {k: round(v, 3) for k, v in lengths.items()}
    report.broken += [f"length: AUC {v:.3f} of {k}" for k, v in lengths.items() if abs(v - 0.5) > LENGTH_LIMIT - 0.5]
    report.figures["median_words"] = {
        label: float(np.median([len(q.question.split()) for q in questions if q.label == label])) for label in LABELS
    }
    cues = [x for x in lean(questions, lambda q: words(q.question)) if x.term in CUES]
    openers = lean(questions, lambda q: words(q.question)[:1])
    report.figures["cues"] = {x.term: f"{x.simple}/{x.complex}" for x in cues}
    report.figures["openers"] = {x.term: f"{x.simple}/{x.complex}" for x in openers if x.simple + x.complex > 3}
    report.broken += [
        f"{kind} {x.term!r} leans: {x.simple} simple, {x.complex} complex"
        for kind, leans in (("cue", cues), ("opener", openers))
        for x in leans
        if abs(x.z) >= LEAN_LIMIT and x.simple + x.complex >= 4
    ]
    other = [x for x in lean(questions, lambda q: words(q.question)) if x.term not in CUES and abs(x.z) >= LEAN_LIMIT]
    report.figures["leaning_words"] = {x.term: f"{x.simple}/{x.complex}" for x in other}
    report.figures["words_probe_auc"] = round(words_probe(questions), 3)
    answers = {label: Counter[str]() for label in LABELS}
    for q in questions:
        if (first := q.answers[0].lower()) in {"yes", "no"}:
            answers[q.label][first] += 1
    report.figures["yes_no"] = {label: f"{c['yes']}/{c['no']}" for label, c in answers.items()}
    for label, count in answers.items():
        if (total := count.total()) and not YES_SHARE[0] <= count["yes"] / total <= YES_SHARE[1]:
            report.broken.append(f"yes/no answers of {label} questions lean: {count['yes']} yes, {count['no']} no")


def check(folder: Path, corpus: Mapping[str, Document]) -> tuple[Report, list[Question]]:
    """Apply every rule to a collection; returns the report and the questions (for review)."""
    report = Report()
    paths = check_documents(folder / "documents.jsonl", corpus, report)
    questions = load_questions(folder / "questions.jsonl")
    unanswerable = load_unanswerable(folder / "questions_unanswerable.jsonl")
    for q in questions:
        shape = check_shape(q, corpus, paths)
        broken, notes = ([], []) if shape else check_facts(q, corpus)
        report.broken += [f"{q.id}: {x}" for x in [*shape, *broken]]
        report.notes += [f"{q.id}: {x}" for x in notes]
    for u in unanswerable:
        if unknown := sorted(set(u.nearest_ids) - corpus.keys()):
            report.broken.append(f"{u.id}: unknown documents {unknown}")
    counts = Counter([q.label for q in questions] + ["unanswerable"] * len(unanswerable))
    report.figures["counts"] = dict(counts)
    report.broken += [f"{counts[k]} {k} questions, {n} are needed" for k, n in LEAST.items() if counts[k] < n]
    unnamed = sum(bool(q.bridge) for q in questions if q.label == "complex")
    report.figures["unnamed_bridges"] = unnamed
    if unnamed * 2 < counts["complex"]:
        report.broken.append(f"{unnamed} of {counts['complex']} complex leave their bridge unnamed")
    report.figures["hops"] = dict(Counter(q.hops for q in questions if q.label == "complex"))
    report.figures["types"] = dict(Counter(f"{q.label}:{q.type}" for q in questions))
    used = {x for q in questions for x in q.supporting_ids}
    report.figures["documents_used"] = f"{len(used)} of {len(corpus)}"
    asked = {q.id: q.question for q in questions} | {u.id: u.question for u in unanswerable}
    if len(asked) != len(questions) + len(unanswerable):
        report.broken.append("an id is used twice")
    report.broken += check_duplicates(asked)
    answers = {f"{q.id} answer {i}": a for q in questions for i, a in enumerate(q.answers)}
    report.broken += check_overlap(asked | answers | {f"{u.id} why": u.why for u in unanswerable}, corpus)
    check_balance(questions, report)
    return report, questions


def review(questions: Sequence[Question], corpus: Mapping[str, Document]) -> str:
    """Every question with its answers and the text of its ranges; for a terminal, never for the repository."""
    lines = []
    for q in questions:
        lines.append(f"{q.id} [{q.type}{', derived' if q.derived else ''}] {q.question}")
        lines.append(f"    = {' | '.join(q.answers)}" + (f"   (bridge: {q.bridge})" if q.bridge else ""))
        for e in q.evidence:
            text = corpus[e.document_id].text[e.start : e.end] if e.document_id in corpus else "?"
            lines.append(f"    {e.document_id} {e.start}-{e.end}: {' '.join(text.split())}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; the exit status is 1 when a rule is broken."""
    parser = argparse.ArgumentParser(description="Are corpus-grounded questions what they claim?")
    parser.add_argument("name", help="a folder in collections/")
    parser.add_argument("--corpus", type=Path, required=True, help="the collection's documents, one JSON object a line")
    parser.add_argument("--review", action="store_true", help="print each question with the text of its ranges")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    folder = COLLECTIONS / options.name
    if not folder.is_dir():
        raise SystemExit(f"{folder}: no such collection")
    corpus = load_corpus(options.corpus)
    report, questions = check(folder, corpus)
    if options.review:
        sys.stdout.write(review(questions, corpus) + "\n")
    if options.json:
        whole = {"figures": report.figures, "broken": report.broken, "notes": report.notes}
        sys.stdout.write(json.dumps(whole, ensure_ascii=False) + "\n")
    else:
        lines = [f"{name:<16} {value}" for name, value in report.figures.items()]
        lines += [f"note             {x}" for x in report.notes] + [f"BROKEN           {x}" for x in report.broken]
        sys.stdout.write("\n".join([*lines, "ok" if not report.broken else f"{len(report.broken)} broken"]) + "\n")
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
