"""Fit the extractive model: python -m standard.extractive.fit ROWS.jsonl … [--write]

A row is one question with what retrieval brought for it:

    {"set", "kind", "question", "answers": [...] or null, "supporting": [document ids], "idf": {lexeme: idf},
     "similarities": [cosine of each sentence of the passages to the question],
     "passages": [{"id", "doc", "title", "heading", "text", "score", "dense", "lexical"}, best first]}

`python -m standard.extractive.rows` writes them. `kind` is user (in the words of people who ask), document (in those of
the documents), near (on a subject of the corpus, not answered by it) or far (a question for another corpus).

A sentence is positive where it holds an answer, as whole words. Evidence is fitted to "a passage of a supporting
document and an answer were found"; near and far questions, and those whose documents were not found, are negative. Each
set is scored by models that never saw it; the tables show the trade-off between answers invented and answers withheld.
Needs scipy (extra `train`).
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from standard.domain.passage import Passage, RetrievedPassage
from standard.domain.text import UntrustedText
from standard.extractive.extract import Array, ExtractiveModel, LinearModel, draft, finish
from standard.extractive.features import (
    EVIDENCE_FEATURES,
    SENTENCE_FEATURES,
    evidence_features,
    sentence_features,
    sentences_of,
    wanted_by,
    with_similarities,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from standard.extractive.extract import Extraction
    from standard.extractive.features import Sentence

KINDS = ("user", "document", "near", "far")
MOST_WITHHELD = 0.1
"""The abstain threshold withholds this share of the questions of users whose answer was found."""

EVIDENCE_SIGNS = {name: -1 if "missing" in name else 1 for name in EVIDENCE_FEATURES}
"""What is met speaks for an answer, what is missing against it: held to, since sets of questions have habits of wording
that teach the contrary (people who know that there is no answer ask in the corpus's own words)."""

Booleans: TypeAlias = "NDArray[np.bool_]"


@dataclass(frozen=True, slots=True)
class Row:
    """A question with its passages; `answers` is None where there is none to find."""

    origin: str
    kind: str
    question: str
    answers: tuple[str, ...] | None
    supporting: frozenset[str]
    idf: Mapping[str, float]
    retrieved: tuple[RetrievedPassage, ...]
    similarities: Array

    def holds_answer(self, text: str) -> bool:
        """Whether the text has one of the answers, as whole words, or is a good part of a quoted one."""
        text = _plain(text)
        for answer in map(_plain, self.answers or ()):
            if re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text) or (len(text) > 24 and text in answer):
                return True
        return False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A row with what is computed once. `positive` marks sentences that hold an answer."""

    row: Row
    sentences: Sequence[Sentence]
    features: Array
    evidence: Array
    positive: Booleans

    @property
    def found(self) -> bool:
        """Whether a passage of a supporting document came, and one with an answer."""
        documents = {item.passage.document_id for item in self.row.retrieved}
        return bool(self.positive.any()) and bool(documents & self.row.supporting)


def read_rows(path: str) -> list[Row]:
    """Read rows; those whose answers are unknown (an empty list) are left out."""
    rows = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        data = json.loads(line)
        if data["answers"] == []:
            continue
        rows.append(
            Row(
                data["set"],
                data["kind"],
                data["question"],
                None if data["answers"] is None else tuple(data["answers"]),
                frozenset(data["supporting"]),
                data["idf"],
                tuple(map(_retrieved, data["passages"])),
                np.array(data["similarities"], dtype=np.float32),
            )
        )
    return rows


def _retrieved(item: Mapping[str, Any]) -> RetrievedPassage:
    passage = Passage(
        passage_id=item["id"],
        document_id=item["doc"],
        title=UntrustedText(item["title"]),
        uri="",
        text=UntrustedText(item["text"]),
        position=0,
        content_hash="",
        section_heading=item["heading"],
    )
    return RetrievedPassage(passage, item["score"], dense_score=item["dense"], lexical_score=item["lexical"])


def prepare(row: Row) -> Prepared | None:
    """Compute features and labels; None for a row without any sentence."""
    sentences = sentences_of([item.passage for item in row.retrieved])
    if not sentences:
        return None
    wanted = wanted_by(row.question, row.idf)
    features = sentence_features(wanted, row.retrieved, sentences)
    positive = np.array([row.holds_answer(sentence.text) for sentence in sentences])
    return Prepared(row, sentences, features, evidence_features(wanted, row.retrieved, sentences, features), positive)


def fit_model(prepared: Sequence[Prepared]) -> ExtractiveModel:
    """Fit all models; every set weighs the same, and within the evidence every kind."""
    useful = [item for item in prepared if item.found]
    plain = _fit_sentences([(item, item.features) for item in useful])
    compared = _fit_sentences([(item, with_similarities(item.features, item.row.similarities)) for item in useful])
    judged = [item for item in prepared if item.row.kind in ("near", "far") or item.found or not item.positive.any()]
    evidence = _logistic(
        np.stack([item.evidence for item in judged]),
        np.array([item.found for item in judged]),
        _weights([(item.row.kind, item.row.origin) for item in judged]) * len(judged),
        signs=[EVIDENCE_SIGNS[name] for name in EVIDENCE_FEATURES],
    )
    return ExtractiveModel(plain, compared, evidence, 0.0, 0.0)


def _fit_sentences(items: Sequence[tuple[Prepared, Array]]) -> LinearModel:
    by_item = _weights([item.row.origin for item, _ in items])
    weights = [
        np.full(len(item.positive), weight / len(item.positive))
        for (item, _), weight in zip(items, by_item, strict=True)
    ]
    return _logistic(
        np.concatenate([features for _, features in items]),
        np.concatenate([item.positive for item, _ in items]),
        np.concatenate(weights) * len(items) * 20,
    )


def _weights(groups: Sequence[Hashable]) -> NDArray[np.float64]:
    """Weights that give every group the same part of a total of 1."""
    counts = Counter(groups)
    return np.array([1.0 / (len(counts) * counts[group]) for group in groups])


def _logistic(
    features: Array, labels: Booleans, weights: NDArray[np.float64], signs: Sequence[int] | None = None
) -> LinearModel:
    """Logistic regression with a ridge of 1; `signs` hold single weights to >= 0 (1) or <= 0 (-1)."""
    from scipy.optimize import minimize

    x, side = features.astype(np.float64), np.where(labels, 1.0, -1.0)

    def loss(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margin = side * (x @ point[:-1] + point[-1])
        pull = -weights * side / (1.0 + np.exp(np.clip(margin, -50.0, 50.0)))
        value = float(weights @ np.logaddexp(0.0, -margin)) + 0.5 * float(point[:-1] @ point[:-1])
        return value, np.append(x.T @ pull + point[:-1], pull.sum())

    free = (None, None)
    bounds = [free if not signs else (0.0, None) if signs[at] > 0 else (None, 0.0) for at in range(x.shape[1])]
    found = minimize(loss, np.zeros(x.shape[1] + 1), jac=True, bounds=[*bounds, free], method="L-BFGS-B").x
    return LinearModel(np.round(found[:-1], 4).astype(np.float32), round(float(found[-1]), 4))


@dataclass(frozen=True, slots=True)
class Scored:
    """One question scored by a model that never saw its set. `right`: the extracted sentences hold an answer."""

    origin: str
    kind: str
    found: bool
    right: bool
    right_dense: bool
    evidence: float


def score_held_out(prepared: Sequence[Prepared]) -> list[Scored]:
    """Score each set by the model fitted on the others."""
    scored = []
    for origin in sorted({item.row.origin for item in prepared}):
        model = fit_model([item for item in prepared if item.row.origin != origin])
        scored += [score(item, model) for item in prepared if item.row.origin == origin]
    return scored


def score(item: Prepared, model: ExtractiveModel) -> Scored:
    """Extract with `model`, with and without comparing sentences."""
    row = item.row
    drafted = draft(row.question, row.retrieved, row.idf, model=model)
    plain = finish(drafted, model=model)
    dense = finish(drafted, row.similarities[list(drafted.shortlist)], model=model)
    return Scored(row.origin, row.kind, item.found, _right(row, plain), _right(row, dense), drafted.evidence)


def _right(row: Row, extraction: Extraction) -> bool:
    return any(row.holds_answer(text) for text in (extraction.text, *(cited.quote for cited in extraction.citations)))


def auc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """The chance that a positive scores above a negative."""
    if not positive or not negative:
        return float("nan")
    pairs = np.subtract.outer(np.array(positive), np.array(negative))
    return float((pairs > 0).mean() + 0.5 * (pairs == 0).mean())


def report(scored: Sequence[Scored]) -> str:
    """The figures as Markdown."""
    lines = [
        "| set | questions | answer found | extracted right | with compared sentences | found vs near | found vs far |",
        "|---|---|---|---|---|---|---|",
    ]
    for origin, kind in sorted({(item.origin, item.kind) for item in scored if item.kind in ("user", "document")}):
        items = [item for item in scored if (item.origin, item.kind) == (origin, kind)]
        found = [item.evidence for item in items if item.found]
        others = [item for item in scored if item.origin == origin]
        figures = (
            np.mean([item.found for item in items]),
            np.mean([item.right for item in items]),
            np.mean([item.right_dense for item in items]),
            auc(found, [item.evidence for item in others if item.kind == "near"]),
            auc(found, [item.evidence for item in others if item.kind == "far"]),
        )
        shown = " | ".join(f"{figure:.2f}" for figure in figures)
        lines.append(f"| {origin}, {kind} | {len(items)} | {shown} |")
    lines += [
        "",
        "| threshold | withheld: near | far | user, not found | user, found | document, found |",
        "|---|---|---|---|---|---|",
    ]
    for threshold in np.arange(0.05, 0.95, 0.05):
        shares = (withheld(group, threshold) for group in _groups(scored))
        lines.append(f"| {threshold:.2f} | " + " | ".join(f"{share:.2f}" for share in shares) + " |")
    return "\n".join(lines)


def _groups(scored: Sequence[Scored]) -> list[list[Scored]]:
    """The columns of the table: near, far, user not found, user found, document found."""
    return [
        [item for item in scored if item.kind == "near"],
        [item for item in scored if item.kind == "far"],
        [item for item in scored if item.kind == "user" and not item.found],
        [item for item in scored if item.kind == "user" and item.found],
        [item for item in scored if item.kind == "document" and item.found],
    ]


def withheld(group: Sequence[Scored], threshold: float) -> float:
    """The share of questions below the threshold, as the mean over sets, so that a large one does not rule."""
    sets = {item.origin for item in group}
    return float(
        np.mean([np.mean([item.evidence < threshold for item in group if item.origin == name]) for name in sets])
    )


def thresholds(scored: Sequence[Scored]) -> tuple[float, float]:
    """(abstain, caveat): what withholds MOST_WITHHELD of what users asked and retrieval found, and half of it."""
    found = _groups(scored)[3]
    grid = np.arange(0.01, 1.0, 0.01)
    shares = np.array([withheld(found, threshold) for threshold in grid])
    abstain, caveat = (float(grid[shares <= share].max(initial=0.01)) for share in (MOST_WITHHELD, 0.5))
    return round(abstain, 2), round(caveat, 2)


def as_json(model: ExtractiveModel) -> str:
    """The model as its artifact."""

    def linear(part: LinearModel, names: Sequence[str]) -> dict[str, object]:
        values = (round(float(value), 4) for value in part.weights)
        return {"weights": dict(zip(names, values, strict=True)), "bias": part.bias}

    data = {
        "sentence": linear(model.sentence, SENTENCE_FEATURES),
        "sentence_dense": linear(model.sentence_dense, SENTENCE_FEATURES),
        "evidence": linear(model.evidence, EVIDENCE_FEATURES),
        "abstain": model.abstain,
        "caveat": model.caveat,
    }
    return json.dumps(data, indent=2) + "\n"


def _plain(text: str) -> str:
    return re.sub(r"[\s*_`|]+", " ", text.casefold()).strip()


def main(arguments: Sequence[str]) -> None:
    """Fit, print the figures, and with --write put the model into the package."""
    rows = [row for path in arguments if path != "--write" for row in read_rows(path)]
    prepared = [item for row in rows if (item := prepare(row))]
    scored = score_held_out(prepared)
    abstain, caveat = thresholds(scored)
    model = replace(fit_model(prepared), abstain=abstain, caveat=caveat)
    sys.stdout.write(f"{report(scored)}\n\nabstain below {abstain}, caveat below {caveat}\n")
    if "--write" in arguments:
        Path(__file__).with_name("weights.json").write_text(as_json(model), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
