"""Make the routing model that ships: `python -m router.evaluation.ship looks|build|refer`, from a source checkout.

looks  asks every question of the sets through the real retriever and keeps the rows (no text of questions or documents)
build  fits text model and decision on our questions, the tuned encoder and those rows, and writes the artifact
refer  makes the reference for drift anew from the rows that an artifact keeps, and leaves its models as they are

The encoder comes from `python -m classifier.training.tune`. Nothing that a user runs needs this module.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from classifier.artifact import CARD, SHIPPED, Embedder, read_artifact, write_artifact
from classifier.encoder import MODEL, TOKENIZER, TextEncoder, open_encoder
from classifier.surface import surface_features
from classifier.training.card import model_card
from classifier.training.decision import Rows, fit_decision
from classifier.training.keys import key_number, question_key
from classifier.training.reference import reference_arrays
from classifier.training.rows import own_questions
from classifier.training.ship import (
    ALONE,
    TunedQuestions,
    arrays_of,
    decision_figures,
    fit_text,
    manifest_of,
    row_arrays,
    rows_from,
    text_figures,
)
from router.evaluation.looks import look_at
from router.evaluation.qaset import find_sets, read_set
from router.evaluation.retrieval import TENANT, ingest_set
from standard.database.migrate import migrate
from standard.database.pool import DatabaseConfig, database_url, open_pool
from standard.domain.passage import Scope
from standard.embedding.factory import open_embedder
from standard.retrieval.retriever import CorpusRetriever

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.evaluation.looks import Looks

RELEASE = "1.0.0"
THRESHOLD = 0.5
"""Even odds: both models are calibrated for them."""


async def collect(folders: Sequence[Path], output: Path, data_directory: Path) -> None:
    """Ask every set below the folders and keep the rows as looks.npz, one file a set."""
    config = DatabaseConfig(data_directory=data_directory)
    async with database_url(config) as url:
        await migrate(url)
        async with open_pool(DatabaseConfig(url=url)) as pool, open_embedder() as embedder:
            retriever = CorpusRetriever(pool, embedder_id=embedder.id, embedder_checksum=embedder.checksum)
            for folder in [path for parent in folders for path in find_sets(parent)]:
                qa = read_set(folder)
                collection = await ingest_set(pool, embedder, qa)
                looks = await look_at(retriever, embedder, qa, Scope(tenant=TENANT, collection=collection))
                keep(looks, output, Embedder(embedder.id, embedder.checksum, embedder.dimensions))


def keep(looks: Looks, output: Path, embedder: Embedder) -> None:
    """Write one set's rows; questions are kept as keys."""
    output.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        output / f"{looks.name}.npz",
        keys=np.array([key_number(question_key(text)) for text in looks.texts], dtype=np.uint64),
        evidence=looks.evidence,
        surface=looks.surface,
        vectors=looks.vectors,
        several=looks.several,
        incomplete=looks.incomplete,
    )
    (output / "embedder.json").write_text(json.dumps([embedder.id, embedder.checksum, embedder.dimension]))


def build(looks: Path, tuned: Path, output: Path, *, date: str) -> dict[str, Any]:
    """Fit and write the artifact; returns its manifest. `tuned` is what classifier.training.tune wrote."""
    held_out = {key_number(key): value for key, value in json.loads((tuned / "held_out.json").read_text()).items()}
    heads = json.loads((tuned / "heads.json").read_text())
    blobs = {MODEL: (tuned / MODEL).read_bytes(), TOKENIZER: (tuned / TOKENIZER).read_bytes()}
    encoder = open_encoder(blobs[MODEL], blobs[TOKENIZER], len(heads["weights"][0]))
    questions = _tuned_questions(encoder, held_out)
    text = fit_text(questions, np.array(heads["weights"][ALONE]), float(heads["bias"][ALONE]))
    rows, keys, names = _rows(looks, held_out)
    decision = fit_decision(rows)
    models = arrays_of("text", text.linear)
    models |= {"heads_weights": np.array(heads["weights"], dtype=np.float32), "heads_bias": np.array(heads["bias"])}
    models |= arrays_of("incomplete", decision.incomplete.linear) | arrays_of("several", decision.several.linear)
    models |= arrays_of("evidence", decision.evidence.linear)
    kept = row_arrays(rows, keys, names) | {
        "own_keys": questions.keys,
        "own_held_out": text.held_out.astype(np.float32),
        "own_labels": questions.labels,
    }
    figures = {"text": text_figures(questions, text), "sets": decision_figures(rows, decision)}
    manifest = manifest_of(
        embedder=Embedder(*json.loads((looks / "embedder.json").read_text())),
        encoder_dimension=encoder.dimension,
        threshold=THRESHOLD,
        created=date,
        release=RELEASE,
        arrays=models,
        set_names=names,
        figures=figures,
        training={
            "encoder": json.loads((tuned / "training.json").read_text()),
            "text": "classifier/data/questions: enterprise_seed, batch_a, batch_b (English rows)",
            "decision": list(names),
        },
    )
    reference = reference_arrays(rows, decision.incomplete.held_out, text.held_out)
    write_artifact(
        output,
        manifest,
        {"model.npz": models, "rows.npz": kept, "reference.npz": reference},
        model_card(manifest),
        blobs,
    )
    return manifest


def refer(folder: Path) -> None:
    """Write the artifact anew with a reference made of its rows."""
    artifact = read_artifact(folder)
    arrays = {name: array for name, array in artifact.arrays.items() if not name.startswith("reference_")}
    rows = rows_from(arrays, [str(name) for name in artifact.manifest["rows"]["sets"]])
    held_out = fit_decision(rows).incomplete.held_out
    reference = reference_arrays(rows, held_out, arrays["own_held_out"].astype(np.float64))
    kept = {name: array for name, array in arrays.items() if name.startswith(("row_", "own_"))}
    models = {name: array for name, array in arrays.items() if name not in kept}
    manifest = {key: value for key, value in artifact.manifest.items() if key not in {"format", "files"}}
    card = (folder / CARD).read_text(encoding="utf-8")
    files = {"model.npz": models, "rows.npz": kept, "reference.npz": reference}
    write_artifact(folder, manifest, files, card, artifact.blobs)


def _tuned_questions(encoder: TextEncoder, held_out: dict[int, list[float]]) -> TunedQuestions:
    own = [row for row in own_questions() if key_number(question_key(row.question)) in held_out]
    texts = [row.question for row in own]
    keys = [key_number(question_key(text)) for text in texts]
    return TunedQuestions(
        keys=np.array(keys, dtype=np.uint64),
        domains=tuple(row.domain for row in own),
        labels=np.array([row.complex for row in own], dtype=bool),
        held_out=np.array([held_out[key][ALONE] for key in keys], dtype=np.float32),
        surface=np.array([surface_features(text) for text in texts], dtype=np.float32),
        vectors=encoder.encode(texts),
    )


def _rows(folder: Path, held_out: dict[int, list[float]]) -> tuple[Rows, Any, list[str]]:
    parts, keys, names = [], [], []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as kept:
            found = {name: kept[name] for name in kept.files}
        encoded = [held_out.get(int(key), [np.nan, np.nan]) for key in found["keys"]]
        parts.append(
            Rows(
                np.array([path.stem] * len(found["keys"])),
                found["vectors"],
                found["evidence"],
                found["surface"],
                np.array(encoded, dtype=np.float32),
                found["several"],
                found["incomplete"],
            )
        )
        keys.append(found["keys"])
        names.append(path.stem)
    whole = Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in Rows.__slots__))
    return whole, np.concatenate(keys), names


def main() -> None:
    """Run one of the steps."""
    parser = argparse.ArgumentParser(description="Make the routing model that ships.")
    steps = parser.add_subparsers(dest="step", required=True)
    looks = steps.add_parser("looks")
    looks.add_argument("sets", nargs="+", type=Path)
    looks.add_argument("--output", type=Path, required=True)
    looks.add_argument("--data-directory", type=Path, default=Path(".pointsman"))
    fitting = steps.add_parser("build")
    fitting.add_argument("--looks", type=Path, required=True)
    fitting.add_argument("--tuned", type=Path, required=True)
    fitting.add_argument("--output", type=Path, default=SHIPPED)
    referring = steps.add_parser("refer")
    referring.add_argument("--output", type=Path, default=SHIPPED)
    given = parser.parse_args()
    if given.step == "looks":
        asyncio.run(collect(given.sets, given.output, given.data_directory))
    elif given.step == "refer":
        refer(given.output)
    else:
        build(given.looks, given.tuned, given.output, date=datetime.now(UTC).date().isoformat())


if __name__ == "__main__":
    main()
