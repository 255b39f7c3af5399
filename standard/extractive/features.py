"""Numbers about a question and its passages: for each sentence, how likely it answers; for all, whether anything does.

Pure, and the same when weights are fitted and when they are used. The question's terms weigh by their inverse document
frequency in the collection, names and numbers more.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from standard.extractive.answer_type import AnswerType, expected_type, offers
from standard.sentences import sentence_spans
from standard.words import content_stems, is_number, stem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from standard.domain.passage import Passage, RetrievedPassage

SENTENCE_FEATURES = (
    "coverage",
    "coverage_nearby",
    "coverage_passage",
    "coverage_behind_best",
    "type_offered",
    "type_missing",
    "rank",
    "dense",
    "dense_behind_best",
    "score",
    "is_heading",
    "is_question",
    "is_short",
    "is_row",
    "length",
)
EVIDENCE_FEATURES = (
    "coverage_sentence",
    "heaviest_missing",
    "dense_top",
    "dense_margin",
    "lexical_share",
    "name_missing",
)

_COVERAGE = SENTENCE_FEATURES.index("coverage")
_COVERAGE_BEHIND = SENTENCE_FEATURES.index("coverage_behind_best")
_DENSE = SENTENCE_FEATURES.index("dense")
_DENSE_BEHIND = SENTENCE_FEATURES.index("dense_behind_best")

_BM25_LIMIT = 2.2  # k1 + 1 at k1 = 1.2: a term's weight in a passage that says nothing else

_HEADING = re.compile(r"#{1,6}\s|\*\*[^*]+\*\*:?$|[^.!?]{0,60}:$|[-=*_]{3,}$")
_NAME_OR_NUMBER = re.compile(r"(?<=\s)[A-Z][\w’'-]*|(?<!\S)[^\s\d]*+\d\S*")
_LEAD = re.compile(r"(?:[-*+•–▪◦>]\s+|\d{1,3}[.)]\s+|#{1,6}\s+)+")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a passage: its place and its stems."""

    source: int
    start: int
    end: int
    text: str
    stems: frozenset[str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a question asks for: stems with weights that add up to 1, the kind of answer, names.

    `best_lexical` is what BM25 would give a passage that is full of every term: the measure of lexical scores, so that
    they do not tell the length of the question.
    """

    question: str
    weights: Mapping[str, float]
    kind: AnswerType
    names: frozenset[str] = field(default_factory=frozenset)
    best_lexical: float = 0.0

    def coverage(self, stems: frozenset[str] | set[str]) -> float:
        """The weighted share (0-1) of the question's terms among these stems."""
        return sum(weight for term, weight in self.weights.items() if term in stems)


def wanted_by(question: str, idf: Mapping[str, float]) -> Wanted:
    """Read a question. `idf` maps lexemes of the collection to their inverse document frequency (may be empty)."""
    by_stem = {stem(lexeme.casefold()): value for lexeme, value in idf.items()}
    unknown = max(by_stem.values(), default=1.0)  # a word that the collection does not have is as rare as can be
    names = frozenset(stem(match[0].casefold()) for match in _NAME_OR_NUMBER.finditer(question))
    weights: dict[str, float] = {}
    for term in content_stems(question):
        weight = max(by_stem.get(term, unknown), 0.1)
        weights[term] = weight * (1.5 if is_number(term) or term in names else 1.0)
    total = sum(weights.values()) or 1.0
    scaled = {term: weight / total for term, weight in weights.items()}
    best_lexical = _BM25_LIMIT * sum(idf.values())
    return Wanted(question, scaled, expected_type(question), names & scaled.keys(), best_lexical)


def sentences_of(passages: Sequence[Passage]) -> list[Sentence]:
    """All sentences of all passages, in order."""
    found = []
    for source, passage in enumerate(passages):
        text = passage.text.raw
        for start, end in sentence_spans(text):
            lead = _LEAD.match(text, start, end)
            begin = start if lead is None or lead.end() >= end else lead.end()
            body = text[begin:end]
            found.append(Sentence(source, begin, end, body, frozenset(content_stems(body))))
    return found


def sentence_features(
    wanted: Wanted, retrieved: Sequence[RetrievedPassage], sentences: Sequence[Sentence]
) -> NDArray[np.float32]:
    """(len(sentences), len(SENTENCE_FEATURES)) float32; the passages' similarity stands for the sentences' own."""
    contexts = [
        frozenset(content_stems(f"{item.passage.title.raw} {item.passage.section_heading}")) for item in retrieved
    ]
    by_passage = [
        context.union(*(s.stems for s in sentences if s.source == source)) for source, context in enumerate(contexts)
    ]
    passage_coverage = [wanted.coverage(stems) for stems in by_passage]
    rows = np.zeros((len(sentences), len(SENTENCE_FEATURES)), dtype=np.float32)
    for at, sentence in enumerate(sentences):
        item = retrieved[sentence.source]
        near = set(contexts[sentence.source]) | sentence.stems
        for other in (at - 2, at - 1, at + 1):
            if 0 <= other < len(sentences) and sentences[other].source == sentence.source:
                near |= sentences[other].stems
        offered = offers(wanted.kind, sentence.text, wanted.question)
        rows[at] = (
            wanted.coverage(sentence.stems),
            wanted.coverage(near),
            passage_coverage[sentence.source],
            0.0,
            offered,
            wanted.kind is not AnswerType.OTHER and not offered,
            1.0 / (1.0 + sentence.source),
            item.dense_score or 0.0,
            0.0,
            item.score,
            _HEADING.match(item.passage.text.raw[sentence.start : sentence.end]) is not None,
            sentence.text.rstrip("*_ ").endswith("?"),
            len(sentence.stems) < 3,
            sentence.text.startswith("|"),
            math.log1p(len(sentence.stems)) / 4,
        )
    rows[:, _COVERAGE_BEHIND] = rows[:, _COVERAGE] - rows[:, _COVERAGE].max(initial=0.0)
    rows[:, _DENSE_BEHIND] = rows[:, _DENSE] - rows[:, _DENSE].max(initial=0.0)
    return rows


def with_similarities(features: NDArray[np.float32], similarities: NDArray[np.float32]) -> NDArray[np.float32]:
    """The features with cosines (n,) of each sentence to the question in place of its passage's."""
    features = features.copy()
    features[:, _DENSE] = similarities
    features[:, _DENSE_BEHIND] = similarities - similarities.max(initial=-1.0)
    return features


def evidence_features(
    wanted: Wanted,
    retrieved: Sequence[RetrievedPassage],
    sentences: Sequence[Sentence],
    features: NDArray[np.float32],
) -> NDArray[np.float32]:
    """(len(EVIDENCE_FEATURES),) float32: what speaks for the passages holding an answer at all.

    Only how well the question's own words and meaning are met counts. Whether a date or a name is offered where one is
    asked for does not help: a passage near the subject nearly always offers some.
    """
    everywhere = frozenset[str]().union(*(sentence.stems for sentence in sentences))
    everywhere |= frozenset(term for item in retrieved for term in content_stems(item.passage.title.raw))
    missing = {term: weight for term, weight in wanted.weights.items() if term not in everywhere}
    dense = sorted((item.dense_score or 0.0 for item in retrieved), reverse=True)
    lexical = max((item.lexical_score or 0.0 for item in retrieved), default=0.0)
    return np.array(
        (
            float(features[:, _COVERAGE].max()),
            max(missing.values(), default=0.0),
            dense[0],
            dense[0] - sum(dense) / len(dense),
            lexical / wanted.best_lexical if wanted.best_lexical else 0.0,
            len(wanted.names & missing.keys()) / max(len(wanted.names), 1),
        ),
        dtype=np.float32,
    )
