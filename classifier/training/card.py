"""The model card: what a routing model was made of, what it is for, and how well it did, out of its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_USE = """\
## What it is for

Deciding whether a question to a RAG gateway is answered by one retrieval or handed to an agentic loop. The text model
gives the probability that a question needs several looks, from its wording. The decision gives the probability that
the five passages of the first retrieval miss a document that is needed; routes are compared with that one.
Probabilities are calibrated for even odds; choose the threshold on your own traffic, and see `pointsman train`
for adapting the text model to your own labels. It reads English; questions in other languages take the configured safe
route.

## What it is not for

Judging people or texts. It has no notion of the truth of an answer, and it was never tried on questions of more than a
few hundred words.
"""

_LICENCES = """\
## Data and licences

- `classifier/data/questions`: written for this project, Apache-2.0 with it.
- Base weights of the text encoder: sentence-transformers/all-MiniLM-L6-v2, Apache-2.0, layers 1 to 3, tuned.
- First looks (numbers computed by our retriever; no text of these sets is in the artifact): `demo` (this project);
  `aventro`, `velvera`, `cendara`, `cloudway` (documents MIT, Copyright (c) 2025 Uday Allu; questions of this project);
  `ai_gateway`, `nvidia_rag` (documents Apache-2.0; questions of this project); `site_policy` (documents CC0-1.0;
  questions of this project); `cheatsheets` (documents CC-BY-SA-4.0, share-alike; questions of this project);
  `musique` (CC-BY-4.0); `hotpotqa` (CC-BY-SA-4.0, share-alike); `2wiki` (Apache-2.0); `popqa` (MIT).
  Which of them were used is listed above.
"""


def model_card(manifest: Mapping[str, Any]) -> str:
    """Return the card of a manifest as Markdown; every figure comes from the manifest."""
    text, sets = manifest["figures"]["text"], manifest["figures"]["sets"]
    training = manifest["training"]
    lines = [
        f"# {manifest['name']} {manifest['version']}",
        "",
        f"Made on {manifest['created']} for the embedder `{manifest['embedder']['id']}`",
        f"(sha256 `{manifest['embedder']['checksum']}`). With another embedder its text model works alone.",
        "",
        _USE,
        "## What it was made of",
        "",
        f"- Text encoder: {training['encoder']['base']}, tuned on {training['encoder']['questions']} questions of",
        f"  {len(training['encoder']['groups'])} domains and collections.",
        f"- Text model: {training['text']}.",
        f"- Decision: first looks at questions of {', '.join(training['decision'])}.",
        "",
        "## Figures",
        "",
        "All on what the models had not seen: whole domains, whole sets. Intervals are 95%, resampled by domain.",
        "",
        f"Text model, {text['questions']} questions of {text['domains']} held-out domains:",
        f"AUC {_interval(text['auc'])}, calibration error {text['ece']:.3f}, Brier score {text['brier']:.3f}.",
        "",
        "| set | questions | several documents | incomplete at 5 | AUC several | AUC incomplete | by evidence alone |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in sets.items():
        lines.append(
            f"| {name} | {row['questions']} | {row['several']:.2f} | {row['incomplete']:.2f}"
            f" | {_number(row['auc_several'])} | {_number(row['auc_incomplete'])}"
            f" | {_number(row['auc_incomplete_evidence'])} |"
        )
    lines += [
        "",
        f"Default threshold: {manifest['threshold']}.",
        "",
        _LICENCES,
    ]
    return "\n".join(lines)


def _interval(figure: Mapping[str, Any]) -> str:
    return f"{figure['value']:.3f} ({figure['low']:.3f} to {figure['high']:.3f})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
