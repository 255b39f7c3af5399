"""`pointsman eval classifier`: how well the text alone tells, on domains and families that were not trained on.

own     our questions, each scored by an encoder that had not seen its domain; these log-odds come with the artifact,
        for tuning an encoder anew takes torch and half an hour (classifier.training.tune makes them)
unseen  public sources by families: a logistic regression on the encoder's vectors and surface features, fitted on all
        families but one and tried on that one; the threshold is the one with 10% false positives on the training side
flips   how often a harmless change moves a question over the threshold, by the model that ships
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from classifier.artifact import SHIPPED, read_artifact
from classifier.calibration import brier, expected_calibration_error, expit
from classifier.encoder import text_encoder_of
from classifier.errors import BadLabels
from classifier.evaluation.curves import reliability, roc, threshold_sweep
from classifier.evaluation.disturbances import DISTURBANCES
from classifier.evaluation.families import family_of, read_sources
from classifier.linear import Linear
from classifier.measures import Interval, auc, bootstrap, threshold_for_false_positives
from classifier.surface import NAMES, surface_features
from classifier.text_model import linear_of
from classifier.training.fit import Block, fit_linear, logits
from classifier.training.keys import key_number, question_key
from classifier.training.rows import QUESTIONS, own_questions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from classifier.artifact import Artifact
    from classifier.encoder import TextEncoder
    from classifier.evaluation.families import SourceRows

FALSE_POSITIVES = 0.10
MOST = 1000
"""Rows a label and source that take part."""
_STRENGTH = 0.01
_SURFACE_STRENGTH = 3.0
_BATCH = 256
DISTURBED = 600
"""Questions that are disturbed."""


def evaluate_classifier(
    folder: Path,
    *,
    model: Path = SHIPPED,
    most: int = MOST,
    disturbed: int = DISTURBED,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None,
) -> dict[str, Any]:
    """Measure the text model in `model` on our questions and on the sources in `folder` (see families.read_sources).

    At most `most` rows a label and source take part, and at most `disturbed` of our questions are disturbed.
    `progress` takes what is being done, how much of it is done, and of how much. Raises ArtifactDamaged, BadLabels.
    """
    artifact = read_artifact(model)
    encoder = text_encoder_of(artifact)
    linear = linear_of(artifact, "text", encoder.dimension, NAMES)
    sources = read_sources(folder, most=most)
    inputs = {}
    for place, source in enumerate(sources):
        inputs[source.source] = text_inputs(encoder, source.questions)
        progress("encoding public questions", place + 1, len(sources))
    shipped = {source.source: logits(linear, inputs[source.source]) for source in sources}
    held_out, cut_at = _families(sources, inputs, encoder.dimension, progress)
    if not held_out:
        raise BadLabels(f"{folder} holds one family of sources alone; holding it out leaves nothing to learn from")
    flipped = flips(artifact, encoder, linear, disturbed, progress)
    return {
        "model_version": artifact.version,
        "own": own_figures(artifact),
        "unseen": _unseen(sources, held_out, cut_at),
        "sources": {
            source.source: {
                "rows": len(source.questions),
                "mixed": source.mixed,
                **_auc_with_interval(held_out.get(source.source), _labels(source)),
                "auc_shipped": auc(shipped[source.source], _labels(source)),
            }
            for source in sources
        },
        "flips": {kind: found.value for kind, found in flipped.items()},
        "flip_intervals": {kind: [found.low, found.high] for kind, found in flipped.items()},
    }


def _auc_with_interval(scores: NDArray[np.float64] | None, labels: NDArray[np.bool_]) -> dict[str, Any]:
    if scores is None:
        return {"auc": None, "auc_interval": [None, None]}
    found = bootstrap(lambda which: auc(scores[which], labels[which]), len(labels), rounds=200)
    return {"auc": found.value, "auc_interval": [found.low, found.high]}


def text_inputs(encoder: TextEncoder, questions: Sequence[str]) -> NDArray[np.float32]:
    """Return the text model's inputs (n, d + features)."""
    inputs = np.empty((len(questions), encoder.dimension + len(NAMES)), dtype=np.float32)
    for start in range(0, len(questions), _BATCH):
        part = questions[start : start + _BATCH]
        inputs[start : start + len(part), : encoder.dimension] = encoder.encode(part)
        inputs[start : start + len(part), encoder.dimension :] = [surface_features(question) for question in part]
    return inputs


def own_figures(artifact: Artifact) -> dict[str, Any]:
    """Return the figures on our own questions, every domain held out."""
    kept = dict(
        zip(artifact.arrays["own_keys"].tolist(), artifact.arrays["own_held_out"].astype(float).tolist(), strict=True)
    )
    rows = [(row, key_number(question_key(row.question))) for row in own_questions()]
    scored = [(row, kept[key]) for row, key in rows if key in kept]
    labels = np.array([row.complex for row, _ in scored], dtype=bool)
    scores = np.array([score for _, score in scored])
    domains = np.unique([row.domain for row, _ in scored], return_inverse=True)[1].astype(np.int64)
    lengths = np.array([len(row.question.split()) for row, _ in scored])
    matched = length_matched(lengths, labels)
    probabilities = expit(scores)
    interval = bootstrap(lambda which: auc(scores[which], labels[which]), len(labels), groups=domains)
    error = bootstrap(
        lambda which: expected_calibration_error(probabilities[which], labels[which]), len(labels), groups=domains
    )
    score = bootstrap(lambda which: brier(probabilities[which], labels[which]), len(labels), groups=domains)
    return {
        "questions": len(labels),
        "left_out": len(rows) - len(scored),
        "domains": int(domains.max()) + 1,
        "auc": interval.value,
        "auc_interval": [interval.low, interval.high],
        "ece": error.value,
        "ece_interval": [error.low, error.high],
        "brier": score.value,
        "brier_interval": [score.low, score.high],
        "length_matched": {"questions": len(matched), **_auc_with_interval(scores[matched], labels[matched])},
        "roc": roc(scores, labels),
        "reliability": reliability(probabilities, labels),
        "thresholds": threshold_sweep(probabilities, labels),
    }


def length_matched(lengths: NDArray[np.int64], labels: NDArray[np.bool_], *, seed: int = 0) -> NDArray[np.int64]:
    """Return row numbers with as many of either label at every length."""
    rng = np.random.default_rng(seed)
    kept: list[NDArray[np.int64]] = []
    for length in np.unique(lengths):
        of_length = [np.flatnonzero((lengths == length) & (labels == label)) for label in (False, True)]
        fewest = min(map(len, of_length))
        kept += [rng.permutation(rows)[:fewest] for rows in of_length]
    return np.sort(np.concatenate(kept)) if kept else np.zeros(0, dtype=np.int64)


def flips(
    artifact: Artifact,
    encoder: TextEncoder,
    linear: Linear,
    disturbed: int = DISTURBED,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None,
) -> dict[str, Interval]:
    """Return the share of disturbed questions that land on the other side of the threshold, by kind of disturbance.

    Intervals are resampled over pairs of a question and its disturbed form.
    """
    threshold = float(artifact.manifest["threshold"])
    english = [row for row in own_questions() if row.english]
    order = np.random.default_rng(0).permutation(len(english))[:disturbed]
    questions = [english[place].question for place in np.sort(order)]

    def agentic(texts: Sequence[str]) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = expit(logits(linear, text_inputs(encoder, texts))) >= threshold
        return found

    def share(pairs: Sequence[tuple[str, str]]) -> Interval:
        if not pairs:
            return Interval(None, None, None)
        flipped = agentic([pair[0] for pair in pairs]) != agentic([pair[1] for pair in pairs])
        return bootstrap(lambda which: float(flipped[which].mean()), len(flipped), rounds=500)

    found: dict[str, Interval] = {}
    for place, (kind, disturb) in enumerate(DISTURBANCES.items()):
        found[kind] = share([(question, form) for question in questions for form in disturb(question)])
        progress("disturbing questions", place + 1, len(DISTURBANCES) + 1)
    found["paraphrase"] = share(_paraphrases())
    progress("disturbing questions", len(DISTURBANCES) + 1, len(DISTURBANCES) + 1)
    return found


def _paraphrases() -> list[tuple[str, str]]:
    by_id = {row.id: row.question for row in own_questions()}
    pairs = []
    for line in (QUESTIONS / "paraphrases.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["id"] in by_id:
            pairs += [(by_id[row["id"]], other) for other in row["paraphrases"]]
    return pairs


def _families(
    sources: Sequence[SourceRows],
    inputs: dict[str, NDArray[np.float32]],
    dimension: int,
    progress: Callable[[str, int, int], None],
) -> tuple[dict[str, NDArray[np.float64]], dict[str, float]]:
    """Return each source's log-odds by a model that had not seen its family, and the threshold set in training."""
    families = sorted({family_of(source.source) for source in sources})
    scores: dict[str, NDArray[np.float64]] = {}
    cut_at: dict[str, float] = {}
    blocks = [Block(dimension, 1.0), Block(len(NAMES), _SURFACE_STRENGTH)]
    for place, family in enumerate(families):
        training = [source for source in sources if family_of(source.source) != family]
        if not training:
            continue
        rows = np.concatenate([inputs[source.source] for source in training])
        labels = np.concatenate([_labels(source) for source in training])
        if len(np.unique(labels)) < 2:
            continue
        model = fit_linear(rows, labels, blocks, _STRENGTH * 0.1, 4.0, np.ones(len(labels)))
        cut = threshold_for_false_positives(logits(model, rows), labels, FALSE_POSITIVES)
        for source in sources:
            if family_of(source.source) == family:
                scores[source.source] = logits(model, inputs[source.source])
                cut_at[source.source] = cut
        progress("holding out families", place + 1, len(families))
    return scores, cut_at


def _unseen(
    sources: Sequence[SourceRows], scores: dict[str, NDArray[np.float64]], cut_at: dict[str, float]
) -> dict[str, Any]:
    tried = [source for source in sources if source.source in scores]
    labels = np.concatenate([_labels(source) for source in tried])
    pooled = np.concatenate([scores[source.source] for source in tried])
    sent = np.concatenate([scores[source.source] >= cut_at[source.source] for source in tried])
    of_source = np.repeat(np.arange(len(tried)), [len(source.questions) for source in tried])
    mixed = np.array([place for place, source in enumerate(tried) if source.mixed], dtype=np.int64)

    def mixed_mean(which: NDArray[np.int64]) -> float | None:
        parts = [which[of_source[which] == place] for place in mixed]
        found = [value for part in parts if (value := auc(pooled[part], labels[part])) is not None]
        return float(np.mean(found)) if found else None

    def interval(figure: Callable[[NDArray[np.int64]], float | None], name: str) -> dict[str, Any]:
        found = bootstrap(figure, len(labels), rounds=200)
        return {name: found.value, f"{name}_interval": [found.low, found.high]}

    lengths = np.array([len(question.split()) for source in tried for question in source.questions])
    matched = length_matched(lengths, labels)
    return {
        **interval(mixed_mean, "mixed_auc"),
        "mixed_sources": len(mixed),
        **interval(lambda which: auc(pooled[which], labels[which]), "pooled_auc"),
        **interval(lambda which: _share(sent[which][labels[which]]), "complex_recall"),
        **interval(lambda which: _share(sent[which][~labels[which]]), "realised_fpr"),
        "target_fpr": FALSE_POSITIVES,
        "rows": len(labels),
        "length_matched": {"rows": len(matched), **_auc_with_interval(pooled[matched], labels[matched])},
        "roc": roc(pooled, labels),
    }


def _share(flags: NDArray[np.bool_]) -> float | None:
    return float(flags.mean()) if len(flags) else None


def _labels(source: SourceRows) -> NDArray[np.bool_]:
    return np.array(source.complex, dtype=bool)
