"""The text encoder: a small transformer tuned to tell questions that need one look from those that need several.

Why a second encode, beside the embedder's: on questions of domains it never saw, a linear model on the embedder's
frozen vectors stays far behind (docs/decisions/ has the figures); and the text model then works whatever embedder is
configured. Three layers, int8, on onnxruntime: a question costs about half of the embedder's encode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from classifier.errors import ArtifactDamaged
from classifier.neutral import neutral

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from classifier.artifact import Artifact

MAX_TOKENS = 128
"""Tokens that are read, the two special ones included; of a longer question the end, where people ask."""
_BATCH = 16
MODEL = "encoder.onnx"
TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class TextEncoder:
    """Encodes questions to vectors of unit length. Safe to share between threads."""

    session: Any
    tokenizer: Any
    dimension: int

    def encode(self, questions: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors (n, dimension) of questions; case and final punctuation make no difference."""
        tokens = [self._tokens(question) for question in questions]
        vectors = np.zeros((len(tokens), self.dimension), dtype=np.float32)
        order = sorted(range(len(tokens)), key=lambda place: len(tokens[place]))
        for start in range(0, len(order), _BATCH):
            places = order[start : start + _BATCH]
            longest = max(len(tokens[place]) for place in places)
            ids = np.zeros((len(places), longest), dtype=np.int64)
            mask = np.zeros((len(places), longest), dtype=np.int64)
            for row, place in enumerate(places):
                ids[row, : len(tokens[place])] = tokens[place]
                mask[row, : len(tokens[place])] = 1
            (vectors[places],) = self.session.run(None, {"input_ids": ids, "attention_mask": mask})
        return vectors

    def _tokens(self, question: str) -> list[int]:
        text = "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in neutral(question))
        ids: list[int] = self.tokenizer.encode(text).ids
        if len(ids) > MAX_TOKENS:
            ids = [ids[0], *ids[-(MAX_TOKENS - 1) :]]
        return ids


def text_encoder_of(artifact: Artifact) -> TextEncoder:
    """Open the encoder of an artifact. Raises ArtifactDamaged where a file is missing or no model."""
    section = artifact.manifest.get("encoder")
    dimension = section.get("dimension") if isinstance(section, dict) else None
    if not isinstance(dimension, int) or MODEL not in artifact.blobs or TOKENIZER not in artifact.blobs:
        raise ArtifactDamaged(f"the routing model in {artifact.folder} lacks {MODEL}, {TOKENIZER} or its dimension")
    try:
        return open_encoder(artifact.blobs[MODEL], artifact.blobs[TOKENIZER], dimension)
    except Exception as error:  # noqa: BLE001 - both libraries raise bare exceptions of their own
        raise ArtifactDamaged(f"the encoder in {artifact.folder} cannot be opened: {error}") from None


def open_encoder(model: bytes, tokenizer_json: bytes, dimension: int) -> TextEncoder:
    """Open an encoder from the contents of its files. Raises what onnxruntime and tokenizers raise."""
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_buffer(tokenizer_json)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return TextEncoder(session, tokenizer, dimension)
