"""`pointsman eval routing`: does the decision send the right questions to the agentic route?

Every set's questions are asked once through the real retriever. Two answers are given for each set: what the shipped
models say (which saw the sets in `trained_on`), and, under `held_out`, what the same recipe says when it is fitted on
the shipped rows of all other sets. The pooled figures are of the latter kind: share of questions with complete evidence
when 35% go agentic, a perfect loop assumed, over the sets in which some question needs several documents. Beside them
`cross_validated` has the same by models that saw other questions of the same sets: what one's own labels would bring.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from classifier.artifact import SHIPPED, Embedder, read_artifact
from classifier.calibration import brier, expected_calibration_error, expit
from classifier.decision_model import decision_model_of, heads_of
from classifier.encoder import text_encoder_of
from classifier.errors import ClassifierError
from classifier.evaluation.curves import at_rate, reliability, roc, threshold_sweep
from classifier.evaluation.shares import complete_share, curve, gap_closed, oracle_share, random_share
from classifier.evaluation.text import length_matched
from classifier.measures import auc, bootstrap
from classifier.training.decision import collection_of, fit_decision
from classifier.training.fit import logits
from classifier.training.keys import key_number, question_key
from classifier.training.ship import rows_from
from router.evaluation.looks import look_at
from router.evaluation.qaset import find_sets, read_set
from router.evaluation.retrieval import TENANT, ingest_set
from standard.domain.errors import Damaged, FailedPrecondition
from standard.domain.passage import Scope
from standard.retrieval.retriever import CorpusRetriever, RetrievalSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from classifier.artifact import Artifact
    from classifier.linear import Linear
    from router.evaluation.looks import Looks
    from standard.database.pool import Pool
    from standard.embedding.protocol import Embedder as QueryEmbedder

SHARE = 0.35
FOLDS = 5
KINDS = ("text", "evidence", "both")


@dataclass(frozen=True, slots=True)
class Scores:
    """Log-odds for the questions of one set, (n,) each: by text, by evidence, by both, and of several documents."""

    text: NDArray[np.float64]
    evidence: NDArray[np.float64]
    both: NDArray[np.float64]
    several: NDArray[np.float64]


async def evaluate_routing(
    pool: Pool,
    embedder: QueryEmbedder,
    directory: Path,
    *,
    names: Sequence[str] = (),
    model: Path = SHIPPED,
    settings: RetrievalSettings | None = None,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None,
) -> dict[str, Any]:
    """Measure routing on the sets below `directory`, or those of `names`, by the model in the folder `model`.

    `progress` takes what is being done, how much of it is done, and of how much. Raises NotFound, InvalidInput,
    FailedPrecondition (a model for another embedder), Damaged, DatabaseUnavailable, EmbedderUnavailable.
    """
    artifact = await asyncio.to_thread(_artifact, model, embedder)
    retriever = CorpusRetriever(
        pool,
        embedder_id=embedder.id,
        embedder_checksum=embedder.checksum,
        settings=settings or RetrievalSettings(),
    )
    looks: list[Looks] = []
    single_hop: set[str] = set()
    for folder in await asyncio.to_thread(find_sets, directory, names):
        qa = await asyncio.to_thread(read_set, folder)
        told = partial(_tell, progress, f"{qa.name}: documents", len(qa.documents))
        collection = await ingest_set(pool, embedder, qa, report=told)
        told = partial(_tell, progress, f"{qa.name}: questions", len(qa.questions))
        scope = Scope(tenant=TENANT, collection=collection)
        looks.append(await look_at(retriever, embedder, qa, scope, report=told))
        if not qa.multi_document:
            single_hop.add(qa.name)
    return await asyncio.to_thread(judged, artifact, looks, frozenset(single_hop))


def _tell(progress: Callable[[str, int, int], None], what: str, total: int, done: int) -> None:
    progress(what, done, total)


def judged(artifact: Artifact, looks: Sequence[Looks], single_hop: frozenset[str]) -> dict[str, Any]:
    """Return the figures of first looks that were had; `single_hop` names sets without multi-document questions."""
    trained_on = [str(name) for name in artifact.manifest["rows"]["sets"]]
    shipped = {one.name: _shipped(artifact, one) for one in looks}
    held_out = {one.name: _held_out(artifact, one, trained_on) for one in looks}
    threshold = float(artifact.manifest["threshold"])
    result: dict[str, Any] = {
        "model_version": artifact.version,
        "trained_on": trained_on,
        "threshold": threshold,
        "sets": {one.name: _set_figures(one, shipped[one.name], held_out[one.name], threshold) for one in looks},
    }
    pooled = [one for one in looks if one.name not in single_hop]
    if pooled:
        result["pooled"] = _pooled(pooled, held_out)
        cross_validated = _cross_validated(artifact, pooled, trained_on)
        if cross_validated is not None:
            result["pooled"]["cross_validated"] = cross_validated
        cut = _threshold_of_share(pooled, held_out)
        for one in looks:
            if one.name in single_hop:
                result[one.name] = {
                    "single_shot": float((expit(shipped[one.name].both) < threshold).mean()),
                    "single_shot_held_out": float((expit(held_out[one.name].both) < threshold).mean()),
                    "single_shot_held_out_at_share": float((held_out[one.name].both < cut).mean()),
                }
    return result


def _artifact(folder: Path, embedder: QueryEmbedder) -> Artifact:
    try:
        artifact = read_artifact(folder)
    except ClassifierError as error:
        raise Damaged(error.message) from None
    if artifact.embedder != Embedder(embedder.id, embedder.checksum, embedder.dimensions):
        raise FailedPrecondition(
            f"the routing model {artifact.version} knows first looks through {artifact.embedder.id} alone, but"
            f" {embedder.id} is configured; there is nothing to measure"
        )
    return artifact


def _encoded(artifact: Artifact, looks: Looks) -> NDArray[np.float32]:
    """Return the encoder's log-odds (n, 2); where the artifact keeps them, by an encoder that had not seen the set."""
    encoder = text_encoder_of(artifact)
    encoded = heads_of(artifact, encoder.dimension).logits(encoder.encode(looks.texts))
    known = artifact.arrays["row_encoded_known"]
    kept = dict(
        zip(artifact.arrays["row_keys"][known].tolist(), artifact.arrays["row_encoded"][known].tolist(), strict=True)
    )
    for place, text in enumerate(looks.texts):
        held = kept.get(key_number(question_key(text)))
        if held is not None:
            encoded[place] = held
    return encoded


def _shipped(artifact: Artifact, looks: Looks) -> Scores:
    encoder = text_encoder_of(artifact)
    encoded = heads_of(artifact, encoder.dimension).logits(encoder.encode(looks.texts))
    model = decision_model_of(artifact)
    return _scores(model.incomplete, model.evidence, model.several, looks, encoded)


def _held_out(artifact: Artifact, looks: Looks, trained_on: Sequence[str]) -> Scores:
    """Score a set by models fitted on the shipped rows of all other sets."""
    rows = rows_from(dict(artifact.arrays), trained_on)
    keys = np.array([key_number(question_key(text)) for text in looks.texts], dtype=np.uint64)
    collections = collection_of(rows.sets)
    asked_here = np.isin(artifact.arrays["row_keys"], keys) | (collections == looks.name)
    same = np.isin(collections, collections[asked_here])
    encoded = _encoded(artifact, looks)
    if not same.any():
        model = decision_model_of(artifact)
        return _scores(model.incomplete, model.evidence, model.several, looks, encoded)
    fitted = fit_decision(rows.chosen(~same))
    return _scores(fitted.incomplete.linear, fitted.evidence.linear, fitted.several.linear, looks, encoded)


def _cross_validated(artifact: Artifact, looks: Sequence[Looks], trained_on: Sequence[str]) -> dict[str, Any] | None:
    """Score the questions of which the artifact keeps rows by models fitted on the other folds, whatever their set."""
    rows = rows_from(dict(artifact.arrays), trained_on)
    keys = artifact.arrays["row_keys"]
    questions, fold_of = np.unique(keys), np.random.default_rng(0)
    fold = dict(zip(questions.tolist(), fold_of.permutation(len(questions)) % FOLDS, strict=True))
    of_row = np.array([fold[key] for key in keys.tolist()])
    fitted = [fit_decision(rows.chosen(of_row != number)) for number in range(FOLDS)]
    found: dict[str, Scores] = {}
    kept: list[Looks] = []
    for one in looks:
        at = np.array([fold.get(key_number(question_key(text)), -1) for text in one.texts])
        known = np.flatnonzero(at >= 0)
        if not len(known):
            continue
        encoded = _encoded(artifact, one)
        by_fold = [
            _scores(part.incomplete.linear, part.evidence.linear, part.several.linear, one, encoded) for part in fitted
        ]
        kept.append(one.chosen(known))
        found[one.name] = Scores(
            *(np.array([getattr(by_fold[at[row]], kind)[row] for row in known]) for kind in Scores.__slots__)
        )
    return {"folds": FOLDS, **_shares(kept, found)} if kept else None


def _scores(
    incomplete: Linear, evidence: Linear, several: Linear, looks: Looks, encoded: NDArray[np.float32]
) -> Scores:
    return Scores(
        text=encoded[:, 0].astype(np.float64),
        evidence=logits(evidence, looks.evidence),
        both=logits(incomplete, np.concatenate([looks.evidence, looks.surface], axis=1)),
        several=logits(several, np.concatenate([looks.vectors, looks.evidence, looks.surface, encoded], axis=1)),
    )


def _set_figures(looks: Looks, shipped: Scores, held_out: Scores, threshold: float) -> dict[str, Any]:
    def figures(scores: Scores) -> dict[str, Any]:
        return {
            "auc_incomplete": auc(scores.both, looks.incomplete),
            "auc_several": auc(scores.several, looks.several),
            "auc_incomplete_evidence": auc(scores.evidence, looks.incomplete),
            "auc_incomplete_text": auc(scores.text, looks.incomplete),
            "auc_several_text": auc(scores.text, looks.several),
            "agentic_share": float((expit(scores.both) >= threshold).mean()),
        }

    intervals = {
        "auc_incomplete": bootstrap(
            lambda rows: auc(held_out.both[rows], looks.incomplete[rows]), len(looks), rounds=500
        ).as_json(),
        "auc_several": bootstrap(
            lambda rows: auc(held_out.several[rows], looks.several[rows]), len(looks), rounds=500
        ).as_json(),
    }
    return {
        "questions": len(looks),
        "incomplete": float(looks.incomplete.mean()),
        "several": float(looks.several.mean()),
        **figures(shipped),
        "held_out": figures(held_out),
        "held_out_intervals": intervals,
    }


def _pooled(looks: Sequence[Looks], scores: Mapping[str, Scores]) -> dict[str, Any]:
    incomplete, joined = _joined(looks, scores)
    lengths = np.array([len(text.split()) for one in looks for text in one.texts])
    matched = length_matched(lengths, incomplete)
    # The models speak for even odds; in the pool as many questions fall short as do.
    spoken = at_rate(joined["both"], float(incomplete.mean()))
    return {
        **_shares(looks, scores),
        "curves": {
            **{kind: curve(values, incomplete) for kind, values in joined.items()},
            "random": curve(np.zeros(len(incomplete)), incomplete),
            "oracle": curve(incomplete.astype(np.float64), incomplete),
        },
        "auc": {kind: auc(values, incomplete) for kind, values in joined.items()},
        "length_matched": {
            "questions": len(matched),
            "auc": {kind: auc(values[matched], incomplete[matched]) for kind, values in joined.items()},
        },
        "roc": {kind: roc(values, incomplete) for kind, values in joined.items()},
        "ece": expected_calibration_error(spoken, incomplete),
        "brier": brier(spoken, incomplete),
        "reliability": reliability(spoken, incomplete),
        "thresholds": _thresholds(joined["both"], incomplete),
    }


def _shares(looks: Sequence[Looks], scores: Mapping[str, Scores]) -> dict[str, Any]:
    """Return the shares with complete evidence at SHARE agentic, with intervals."""
    incomplete, joined = _joined(looks, scores)

    def interval(figure: Callable[[NDArray[np.int64]], float | None]) -> dict[str, float | None]:
        return bootstrap(figure, len(incomplete), rounds=500).as_json()

    figures: dict[str, Callable[[NDArray[np.int64]], float]] = {
        "random": lambda rows: random_share(incomplete[rows], SHARE),
        "oracle": lambda rows: oracle_share(incomplete[rows], SHARE),
    }
    for kind, values in joined.items():
        figures[kind] = partial(_complete, values, incomplete)
    everything = np.arange(len(incomplete))
    return {
        "sets": [one.name for one in looks],
        "questions": len(incomplete),
        "share": SHARE,
        **{kind: figures[kind](everything) for kind in (*joined, "random", "oracle")},
        "intervals": {kind: interval(figures[kind]) for kind in (*joined, "random", "oracle")},
        "gap_closed": interval(lambda rows: gap_closed(joined["both"][rows], incomplete[rows], SHARE)),
        "gap_closed_text": interval(lambda rows: gap_closed(joined["text"][rows], incomplete[rows], SHARE)),
        "gap_closed_evidence": interval(lambda rows: gap_closed(joined["evidence"][rows], incomplete[rows], SHARE)),
    }


def _complete(values: NDArray[np.float64], incomplete: NDArray[np.bool_], rows: NDArray[np.int64]) -> float:
    return complete_share(values[rows], incomplete[rows], SHARE)


def _thresholds(logits_: NDArray[np.float64], incomplete: NDArray[np.bool_]) -> list[dict[str, float | None]]:
    """Return the sweep over thresholds, with the share whose evidence is complete at each."""
    probabilities = expit(logits_)
    found = threshold_sweep(probabilities, incomplete)
    for row in found:
        kept = probabilities < (row["threshold"] or 0.0)
        row["complete"] = 1.0 - float((kept & incomplete).mean())
    return found


def _joined(
    looks: Sequence[Looks], scores: Mapping[str, Scores]
) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.float64]]]:
    incomplete = np.concatenate([one.incomplete for one in looks])
    return incomplete, {kind: np.concatenate([getattr(scores[one.name], kind) for one in looks]) for kind in KINDS}


def _threshold_of_share(looks: Sequence[Looks], scores: Mapping[str, Scores]) -> float:
    return float(np.quantile(np.concatenate([scores[one.name].both for one in looks]), 1.0 - SHARE))
