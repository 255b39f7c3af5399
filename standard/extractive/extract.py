"""An answer made of sentences of the passages, each cited, and the score that says whether to trust it.

Sentences are ranked by a logistic model over plain features (standard.extractive.features), the whole is judged by
another: the probability that the passages hold an answer. Weights and thresholds are fitted by
`python -m standard.extractive.fit` and shipped as JSON; how well they do stands in MODEL_CARD.md.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from standard.domain.answer import Citation
from standard.domain.errors import Damaged
from standard.extractive.features import (
    EVIDENCE_FEATURES,
    SENTENCE_FEATURES,
    Sentence,
    evidence_features,
    sentence_features,
    sentences_of,
    wanted_by,
    with_similarities,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from standard.domain.passage import RetrievedPassage

Array = NDArray[np.float32]

SHORTLIST = 8
"""Sentences that an embedder looks at, at most: more of them find no more answers."""

_FURTHER = 0.4  # a further sentence needs this share of the best one's probability …
_SAME = 0.8  # … and no more than this share of its words may have been said
_ROW_CELL = re.compile(r"\s*\|\s*")


@dataclass(frozen=True, slots=True)
class LinearModel:
    """A logistic model: probability = sigmoid(features @ weights + bias)."""

    weights: Array
    bias: float

    def probability(self, features: Array) -> Array:
        """(n, d) or (d,) features -> (n,) or () probabilities."""
        logits = np.clip(features @ self.weights + self.bias, -30.0, 30.0)
        return np.asarray(1.0 / (1.0 + np.exp(-logits)), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class ExtractiveModel:
    """The models and their thresholds: evidence below `abstain` is no answer, below `caveat` a doubtful one.

    `sentence_dense` ranks where each sentence was compared with the question, `sentence` where only its passage was.
    """

    sentence: LinearModel
    sentence_dense: LinearModel
    evidence: LinearModel
    abstain: float
    caveat: float


@dataclass(frozen=True, slots=True)
class Extraction:
    """The extracted answer. `evidence` (0-1) estimates the probability that the passages hold what was asked for."""

    text: str
    citations: tuple[Citation, ...]
    evidence: float


NOTHING = Extraction("", (), 0.0)


@lru_cache(maxsize=1)
def shipped_model() -> ExtractiveModel:
    """The model that comes with the package. Raises Damaged where its file does not fit this release."""
    text = (resources.files("standard.extractive") / "weights.json").read_text(encoding="utf-8")
    return read_model(text)


def read_model(text: str) -> ExtractiveModel:
    """Read a model from JSON. Raises Damaged where it is no model of these features."""
    try:
        data = json.loads(text)
        return ExtractiveModel(
            _linear(data["sentence"], SENTENCE_FEATURES),
            _linear(data["sentence_dense"], SENTENCE_FEATURES),
            _linear(data["evidence"], EVIDENCE_FEATURES),
            float(data["abstain"]),
            float(data["caveat"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(
            f"extractive/weights.json does not fit this release ({error}); reinstall pointsman, or fit it anew with "
            "python -m standard.extractive.fit"
        ) from error


def _linear(data: Mapping[str, object], names: Sequence[str]) -> LinearModel:
    weights = data["weights"]
    if not isinstance(weights, dict) or set(weights) != set(names):
        raise ValueError("its features are others")
    return LinearModel(np.array([float(weights[name]) for name in names], dtype=np.float32), float(str(data["bias"])))


@dataclass(frozen=True, slots=True)
class Draft:
    """Ranked sentences before the last look. `shortlist` are indices of the most promising, best first."""

    retrieved: Sequence[RetrievedPassage]
    sentences: Sequence[Sentence]
    features: Array
    shortlist: tuple[int, ...]
    evidence: float

    def shortlisted_texts(self) -> list[str]:
        """The texts of the shortlist: what an embedder may compare with the question."""
        return [self.sentences[at].text for at in self.shortlist]


def draft(
    question: str,
    retrieved: Sequence[RetrievedPassage],
    idf: Mapping[str, float],
    *,
    model: ExtractiveModel | None = None,
    most: int = SHORTLIST,
) -> Draft:
    """Rank the sentences of `retrieved` (best passage first) by words, ranks and the passages' similarity.

    `idf` maps the question's lexemes to their inverse document frequency (SearchResult.term_idf; may be empty).
    """
    model = model or shipped_model()
    sentences = sentences_of([item.passage for item in retrieved])
    if not sentences:
        return Draft(retrieved, (), np.zeros((0, len(SENTENCE_FEATURES)), dtype=np.float32), (), 0.0)
    wanted = wanted_by(question, idf)
    features = sentence_features(wanted, retrieved, sentences)
    order = np.argsort(-model.sentence.probability(features), kind="stable")[:most]
    evidence = model.evidence.probability(evidence_features(wanted, retrieved, sentences, features))
    return Draft(retrieved, sentences, features, tuple(map(int, order)), float(evidence))


def finish(
    drafted: Draft, similarities: Array | None = None, *, model: ExtractiveModel | None = None, most: int = 3
) -> Extraction:
    """Make 1 to `most` sentences an answer. `similarities` are cosines of the question to the shortlisted texts."""
    if not drafted.shortlist:
        return NOTHING
    model = model or shipped_model()
    shortlist = list(drafted.shortlist)
    features = drafted.features[shortlist]
    if similarities is None:
        scores = model.sentence.probability(features)
    else:
        scores = model.sentence_dense.probability(with_similarities(features, similarities))
    sentences = [drafted.sentences[at] for at in shortlist]
    text, citations = _write([sentences[at] for at in _choose(sentences, scores, most)], drafted.retrieved)
    return Extraction(text, citations, drafted.evidence)


def extract(
    question: str,
    retrieved: Sequence[RetrievedPassage],
    idf: Mapping[str, float],
    *,
    model: ExtractiveModel | None = None,
) -> Extraction:
    """Draft and finish in one, without comparing sentences by an embedder."""
    return finish(draft(question, retrieved, idf, model=model), model=model)


def _choose(sentences: Sequence[Sentence], scores: Array, most: int) -> list[int]:
    """Places of the sentences to show: the best first, then others nearly as good that say something else."""
    order = np.argsort(-scores, kind="stable")
    chosen = [int(order[0])]
    said = set(sentences[chosen[0]].stems)
    for at in map(int, order[1:]):
        if len(chosen) >= most or scores[at] < _FURTHER * scores[chosen[0]]:
            break
        stems = sentences[at].stems
        if len(stems & said) <= _SAME * max(len(stems), 1):
            chosen.append(at)
            said |= stems
    return chosen


def _write(chosen: Sequence[Sentence], retrieved: Sequence[RetrievedPassage]) -> tuple[str, tuple[Citation, ...]]:
    """Put sentences together and cite each: the answer's span, and the exact span of the passage."""
    text = ""
    citations = []
    for sentence in chosen:
        shown = _shown(sentence.text)
        text += " " if text else ""
        start = len(text)
        text += shown
        passage = retrieved[sentence.source].passage
        citations.append(
            Citation(
                passage_id=passage.passage_id,
                document_id=passage.document_id,
                title=passage.title.raw,
                uri=passage.uri,
                quote=passage.text.raw[sentence.start : sentence.end],
                answer_start=start,
                answer_end=len(text),
                passage_start=sentence.start,
                passage_end=sentence.end,
            )
        )
    return text, tuple(citations)


def _shown(sentence: str) -> str:
    """A sentence as it reads in an answer: on one line, a table's row without its bars."""
    line = " ".join(sentence.split())
    if line.startswith("|"):
        line = _ROW_CELL.sub(" · ", line.strip("| "))
    return line
