"""`pointsman eval routing`: does the decision send the right questions to the agentic route?

Every set's questions are asked once through the real retriever. Two answers are given for each set: what the shipped
models say (which saw the sets in `trained_on`), and, under `held_out`, what the same recipe says when it is fitted on
the shipped rows of all other sets. The pooled figures are of the latter kind: share of questions with complete evidence
when 35% go agentic, a perfect loop assumed, over the sets in which some question needs several documents.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from classifier.artifact import SHIPPED, Embedder, read_artifact
from classifier.calibration import expit
from classifier.decision_model import decision_model_of, heads_of
from classifier.encoder import text_encoder_of
from classifier.errors import ClassifierError
from classifier.evaluation.shares import complete_share, curve, gap_closed, oracle_share, random_share
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
SINGLE_HOP = "popqa"


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
    incomplete = np.concatenate([one.incomplete for one in looks])
    joined = {
        kind: np.concatenate([getattr(scores[one.name], kind) for one in looks])
        for kind in ("text", "evidence", "both")
    }
    gap = bootstrap(lambda rows: gap_closed(joined["both"][rows], incomplete[rows], SHARE), len(incomplete), rounds=500)
    return {
        "sets": [one.name for one in looks],
        "questions": len(incomplete),
        "share": SHARE,
        **{kind: complete_share(values, incomplete, SHARE) for kind, values in joined.items()},
        "random": random_share(incomplete, SHARE),
        "oracle": oracle_share(incomplete, SHARE),
        "gap_closed": gap.as_json(),
        "curves": {kind: curve(values, incomplete) for kind, values in joined.items()},
    }


def _threshold_of_share(looks: Sequence[Looks], scores: Mapping[str, Scores]) -> float:
    return float(np.quantile(np.concatenate([scores[one.name].both for one in looks]), 1.0 - SHARE))
