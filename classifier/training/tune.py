"""Tune the text encoder: three layers of all-MiniLM-L6-v2, end to end, on labelled questions.

    python -m classifier.training.tune --weights FOLDER --collections NAME=QUESTIONS ... --output FOLDER

Needs torch and transformers (extra `models`); serving needs neither. Two heads share the encoder: one for questions
that stand alone (our own), one for questions asked of a collection; their domains and collections are split into FOLDS
parts, and each part is scored by an encoder that saw none of it. Those held-out log-odds go to held_out.json, the
encoder tuned on everything to encoder.onnx (int8, with the vectors as output) and the heads to heads.json. Word
embeddings stay as they are: some thousand questions are too few to move 30,000 of them. About three minutes a fold on
an idle core.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from classifier.encoder import MAX_TOKENS, TOKENIZER
from classifier.measures import auc
from classifier.neutral import neutral
from classifier.training.keys import question_key
from classifier.training.rows import own_questions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

FOLDS = 3
LAYERS = 3
EPOCHS = 4
BATCH = 24
RATE = 1e-4
HEAD_RATE = 1e-3
SMOOTHING = 0.05
SCALE = 8.0
"""Length of the vectors that the heads read, so that their weights stay small."""
ALONE, ASKED = 0, 1
"""The heads: questions that stand alone, and questions asked of a collection."""


@dataclass(frozen=True, slots=True)
class Row:
    """A question to tune on: its head, its label and the domain or collection that is held out whole."""

    question: str
    complex: bool
    head: int
    group: str


def fold_of(groups: Sequence[str]) -> dict[str, int]:
    """Return each group's fold; domains and collections are each spread evenly."""
    names = sorted(set(groups))
    random.Random(5).shuffle(names)  # noqa: S311 - a reproducible split
    folds: dict[str, int] = {}
    for kind in ("own:", "set:"):
        folds |= {name: place % FOLDS for place, name in enumerate(name for name in names if name.startswith(kind))}
    return folds


def rows_of(collections: dict[str, Path]) -> list[Row]:
    """Return our English questions and those of the collections."""
    rows = [Row(row.question, row.complex, ALONE, f"own:{row.domain}") for row in own_questions() if row.english]
    for name, path in collections.items():
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row.get("supporting_ids"):
                rows.append(Row(row["question"], len(row["supporting_ids"]) > 1, ASKED, f"set:{name}"))
    return rows


def make_encoder(weights: Path) -> Any:  # noqa: ANN401 - a torch module
    """Return the untuned encoder: word embeddings, LAYERS layers, pooling by learned attention, two heads."""
    import torch
    from transformers import AutoModel

    class Encoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            whole = AutoModel.from_pretrained(str(weights), attn_implementation="eager")
            self.emb = whole.embeddings
            self.layers = torch.nn.ModuleList(list(whole.encoder.layer)[:LAYERS])
            self.att = torch.nn.Linear(whole.config.hidden_size, 1)
            self.head = torch.nn.Linear(whole.config.hidden_size, 2)
            for part in (self.att, self.head):
                torch.nn.init.zeros_(part.weight)
                torch.nn.init.zeros_(part.bias)
            for parameter in self.emb.parameters():
                parameter.requires_grad = False

        def vectors(self, input_ids: Any, attention_mask: Any) -> Any:  # noqa: ANN401
            state = self.emb(input_ids=input_ids)
            away = (1 - attention_mask)[:, None, None, :].float() * -1e9
            for layer in self.layers:
                state = layer(state, away)
                state = state[0] if isinstance(state, tuple) else state
            weight = torch.softmax(self.att(state).squeeze(2) + (1 - attention_mask).float() * -1e9, 1)
            return torch.nn.functional.normalize((state * weight[:, :, None]).sum(1), dim=1)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:  # noqa: ANN401
            return self.head(self.vectors(input_ids, attention_mask) * SCALE)

    return Encoder()


class Tuner:
    """Tunes encoders on parts of the same rows."""

    def __init__(self, rows: Sequence[Row], weights: Path) -> None:
        import torch
        from tokenizers import Tokenizer

        torch.set_num_threads(1)
        self._torch = torch
        self._weights = weights
        tokenizer = Tokenizer.from_file(str(weights / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.rows = rows
        self.tokens = []
        for row in rows:
            ids = tokenizer.encode(neutral(row.question)).ids
            self.tokens.append(ids if len(ids) <= MAX_TOKENS else [ids[0], *ids[-(MAX_TOKENS - 1) :]])
        self.labels = np.array([row.complex for row in rows], dtype=np.float32)
        self.heads = np.array([row.head for row in rows])

    def tune(self, training: Sequence[int], name: str) -> Any:  # noqa: ANN401
        """Return an encoder tuned on the rows `training`."""
        torch = self._torch
        torch.manual_seed(0)
        chance = random.Random(0)  # noqa: S311 - a reproducible order
        net = make_encoder(self._weights)
        net.train()
        rates = (RATE, HEAD_RATE)
        optimiser = torch.optim.AdamW(
            [
                {"params": list(net.layers.parameters()), "lr": RATE},
                {"params": [*net.att.parameters(), *net.head.parameters()], "lr": HEAD_RATE},
            ],
            weight_decay=0.01,
        )
        steps, step, began = EPOCHS * (len(training) // BATCH + 1), 0, time.monotonic()
        for epoch in range(EPOCHS):
            for batch in self._batches(training, chance):
                logits = net(*self._padded(batch))[torch.arange(len(batch)), torch.tensor(self.heads[batch])]
                target = torch.tensor(self.labels[batch]) * (1.0 - 2.0 * SMOOTHING) + SMOOTHING
                loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target)
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                share = min(1.0, step / (0.1 * steps + 1)) * max(0.02, 1.0 - step / steps)
                for group, rate in zip(optimiser.param_groups, rates, strict=True):
                    group["lr"] = rate * share
                optimiser.step()
                step += 1
            print(f"{name}: epoch {epoch + 1} of {EPOCHS}, {time.monotonic() - began:.0f} s", file=sys.stderr)  # noqa: T201
        return net.eval()

    def score(self, net: Any, rows: Sequence[int]) -> NDArray[np.float64]:  # noqa: ANN401
        """Return both heads' log-odds (rows, 2)."""
        found = np.zeros((len(rows), 2))
        order = sorted(range(len(rows)), key=lambda place: len(self.tokens[rows[place]]))
        with self._torch.no_grad():
            for start in range(0, len(order), 64):
                places = order[start : start + 64]
                found[places] = net(*self._padded([rows[place] for place in places])).numpy()
        return found

    def _batches(self, training: Sequence[int], chance: random.Random) -> list[list[int]]:
        """Return batches of questions of like length, in random order."""
        shuffled = list(training)
        chance.shuffle(shuffled)
        batches: list[list[int]] = []
        for start in range(0, len(shuffled), BATCH * 16):
            chunk = sorted(shuffled[start : start + BATCH * 16], key=lambda row: len(self.tokens[row]))
            batches += [chunk[place : place + BATCH] for place in range(0, len(chunk), BATCH)]
        chance.shuffle(batches)
        return batches

    def _padded(self, rows: Sequence[int]) -> tuple[Any, Any]:
        torch = self._torch
        longest = max(len(self.tokens[row]) for row in rows)
        ids = torch.zeros(len(rows), longest, dtype=torch.long)
        mask = torch.zeros(len(rows), longest, dtype=torch.long)
        for place, row in enumerate(rows):
            ids[place, : len(self.tokens[row])] = torch.tensor(self.tokens[row])
            mask[place, : len(self.tokens[row])] = 1
        return ids, mask


def export(net: Any, output: Path) -> None:  # noqa: ANN401
    """Write encoder.onnx: input_ids and attention_mask (n, tokens) int64 in, vectors (n, d) float32 out; int8."""
    import onnx
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    class Vectors(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:  # noqa: ANN401
            return self.net.vectors(input_ids, attention_mask)

    ids = torch.randint(1000, 20000, (2, 16))
    whole = output / "encoder.fp32.onnx"
    axes = {0: "questions", 1: "tokens"}
    torch.onnx.export(
        Vectors().eval(),
        (ids, torch.ones_like(ids)),
        str(whole),
        input_names=["input_ids", "attention_mask"],
        output_names=["vectors"],
        dynamic_axes={"input_ids": axes, "attention_mask": axes, "vectors": {0: "questions"}},
        opset_version=17,
        dynamo=False,
    )
    onnx.checker.check_model(str(whole))
    quantize_dynamic(str(whole), str(output / "encoder.onnx"), weight_type=QuantType.QInt8, per_channel=True)
    whole.unlink()


def main() -> None:
    """Tune, score what was held out, export."""
    parser = argparse.ArgumentParser(description="Tune the text encoder.")
    parser.add_argument("--weights", type=Path, required=True, help="Folder of the official all-MiniLM-L6-v2.")
    parser.add_argument("--collections", nargs="*", default=[], metavar="NAME=QUESTIONS.jsonl")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    collections = {name: Path(path) for name, path in (pair.split("=", 1) for pair in given.collections)}
    given.output.mkdir(parents=True, exist_ok=True)
    rows = rows_of(collections)
    tuner = Tuner(rows, given.weights)
    folds = fold_of([row.group for row in rows])
    held_out: dict[str, list[float]] = {}
    for fold in range(FOLDS):
        inside = [place for place, row in enumerate(rows) if folds[row.group] != fold]
        outside = [place for place, row in enumerate(rows) if folds[row.group] == fold]
        scores = tuner.score(tuner.tune(inside, f"fold {fold + 1}"), outside)
        held_out |= {question_key(rows[place].question): scores[i].tolist() for i, place in enumerate(outside)}
        alone = [i for i, place in enumerate(outside) if rows[place].head == ALONE]
        labels = tuner.labels[[outside[i] for i in alone]] > 0.5
        print(f"fold {fold + 1}: AUC alone {auc(scores[alone, ALONE], labels)}", file=sys.stderr)  # noqa: T201
        (given.output / "held_out.json").write_text(json.dumps(held_out))
    net = tuner.tune(range(len(rows)), "all")
    export(net, given.output)
    heads = {"weights": (net.head.weight * SCALE).tolist(), "bias": net.head.bias.tolist()}
    (given.output / "heads.json").write_text(json.dumps(heads))
    (given.output / TOKENIZER).write_bytes((given.weights / TOKENIZER).read_bytes())
    told = {"base": "all-MiniLM-L6-v2, layers 1 to 3", "questions": len(rows), "groups": sorted(folds)}
    (given.output / "training.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
