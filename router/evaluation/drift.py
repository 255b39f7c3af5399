"""`pointsman eval drift`: have questions moved away from what the routing model was trained on? From the journal.

The gateway's metric says so while it runs; this looks at any stretch of the past. Probabilities are in the journal; the
embedding is made anew from the questions whose text it keeps. Probabilities of another model than the one in use and of
an adapted one are left out: the reference is of the model as it was trained.
"""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import numpy as np

from classifier.artifact import SHIPPED, Embedder, read_artifact
from classifier.drift import BINS, CLOSELY, LEAST, MOVED, DriftWindow, level, reference_of
from classifier.errors import ClassifierError
from classifier.linear import log_odds
from router.asked import embedded_text
from router.evaluation.plots import BarChart, Bars
from router.evaluation.report import Report, Section, Table
from router.journal.codec import EventCodec
from router.journal.finished import finished_runs
from router.journal.question import question_of
from standard.domain.errors import Damaged, FailedPrecondition

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from classifier.drift import Reference
    from router.journal.codec import Consent
    from router.journal.finished import FinishedRun
    from standard.database.pool import Pool
    from standard.embedding.protocol import Embedder as QueryEmbedder

MOST = 20_000
"""Runs that are looked at, newest first."""
_BATCH = 64


async def evaluate_drift(
    pool: Pool,
    embedder: QueryEmbedder,
    *,
    consent: Consent,
    retention_days: float,
    since: dt.datetime | None = None,
    tenant: str = "",
    collection: str = "",
    model: Path | None = None,
    report: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Compare the journal's runs with the reference of the model in the folder `model` (None: the shipped one).

    `report` takes the number of runs done. Raises Damaged, FailedPrecondition (a model without a reference),
    DatabaseUnavailable, EmbedderUnavailable.
    """
    version, reference, same = _reference(model or SHIPPED, embedder)
    window = DriftWindow(reference, size=MOST, vectors=same)
    left_out: Counter[str] = Counter()
    batch: list[FinishedRun] = []
    done = 0
    runs = finished_runs(
        pool, EventCodec(), retention_days=retention_days, since=since, tenant=tenant, collection=collection
    )

    async def take() -> None:
        texts = [_text(run, consent) for run in batch]
        told = [text for text in texts if text is not None]
        left_out["without_text"] += len(batch) - len(told)
        vectors = np.full((len(batch), embedder.dimensions), np.nan, dtype=np.float32)
        if same and told:
            vectors[[place for place, text in enumerate(texts) if text is not None]] = await embedder.embed_queries(
                told
            )
        logits = [_logit(run, version, left_out) for run in batch]
        by_text = [run.facts.decision is None or run.facts.decision.evidence_probability is None for run in batch]
        window.add(logits, by_text, vectors)
        batch.clear()

    async with aclosing(runs) as found:
        async for run in found:
            batch.append(run)
            done += 1
            if len(batch) == _BATCH:
                await take()
                report(done)
            if done == MOST:
                break
    if batch:
        await take()
        report(done)
    stability = window.stability()
    return {
        "model_version": version,
        "runs": done,
        "truncated": done == MOST,
        "left_out": {name: count for name, count in sorted(left_out.items()) if count},
        "signals": {
            "probability": _signal(stability.probability, stability.logits),
            "embedding": _signal(stability.embedding, stability.vectors),
        },
        "probability_shares": list(stability.logit_shares),
        "embedding_directions": list(stability.directions),
        "warnings": [] if same else [f"the model's reference is of another embedder than {embedder.id}"],
    }


def _reference(folder: Path, embedder: QueryEmbedder) -> tuple[str, Reference, bool]:
    try:
        artifact = read_artifact(folder)
        reference = reference_of(artifact)
    except ClassifierError as error:
        raise Damaged(error.message) from None
    if reference is None:
        raise FailedPrecondition(f"the routing model {artifact.version} was made without a reference; train it anew")
    return (
        artifact.version,
        reference,
        artifact.embedder == Embedder(embedder.id, embedder.checksum, embedder.dimensions),
    )


def _text(run: FinishedRun, consent: Consent) -> str | None:
    if consent != "text" or run.question is None or "top_k" not in run.question:
        return None
    try:
        return embedded_text(question_of(run.question, run.tenant, run.request_id, None))
    except FailedPrecondition:
        return None


def _logit(run: FinishedRun, version: str, left_out: Counter[str]) -> float | None:
    decision = run.facts.decision
    if decision is None or decision.complex_probability is None:
        left_out["without_probability"] += 1
        return None
    if decision.model_version != version or ".adapted-" in version:
        left_out["another_model"] += 1
        return None
    return log_odds(decision.complex_probability)


def _signal(psi: float | None, questions: int) -> dict[str, Any]:
    return {"psi": psi, "level": level(psi), "questions": questions}


def drift_report(results: Mapping[str, Any]) -> Report:
    """Return the page of what `evaluate_drift` returned."""
    rows = [(name, found["questions"], found["psi"], found["level"]) for name, found in results["signals"].items()]
    charts = []
    if results["probability_shares"]:
        bars = Bars("asked", results["probability_shares"])
        bins = [f"{100 * place // BINS} to {100 * (place + 1) // BINS}%" for place in range(BINS)]
        title = "Probability: shares of questions in bins that each held a tenth in training"
        charts.append(BarChart("probability", title, "share", bins, [bars], limits=None, at=1.0 / BINS))
    if results["embedding_directions"]:
        directions = results["embedding_directions"]
        names = [str(number) for number in range(1, len(directions) + 1)]
        title = "Embedding: PSI along the directions in which training questions differ most"
        charts.append(BarChart("embedding", title, "PSI", names, [Bars("PSI", directions)], limits=None, at=CLOSELY))
    told = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in results["left_out"].items())
    return Report(
        "Drift",
        [
            Section(
                "Population stability against training",
                [
                    (
                        f"Below {MOVED} nothing moved, from {CLOSELY} on look closely. Below {LEAST} questions there"
                        " is no figure."
                    ),
                    *([f"Left out: {told}."] if told else []),
                    *results["warnings"],
                ],
                [Table(("signal", "questions", "PSI", "meaning"), rows)],
                charts,
            )
        ],
        [f"{results['runs']} runs of the journal against the routing model `{results['model_version']}`."],
    )
