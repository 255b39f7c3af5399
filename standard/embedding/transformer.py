"""Any sentence-transformers model, by id or folder. Needs the extra `models` (torch), imported when one is opened.

Prompts that a model brings for queries and documents are used. Code that a model's repository brings is not run.
"""

from __future__ import annotations

import copy
import hashlib
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from standard.domain.errors import EmbedderUnavailable, FailedPrecondition
from standard.embedding.longtext import pieces, weighted_means
from standard.embedding.protocol import checked_query, encodable, normalised
from standard.embedding.separate import embed_separately
from standard.embedding.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from standard.embedding.protocol import PassageInput, PassageVectors

# Tokenizers without a limit say 10^30; models of that kind were trained on at least this much.
_ASSUMED_WINDOW = 512
_SANE_WINDOW = 1_000_000
_BATCH = 16
_QUERY_PROMPTS = ("query",)
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


class TransformerEmbedder:
    """An Embedder on sentence-transformers. Whoever made it closes it."""

    def __init__(self, model: str, *, threads: int = 2) -> None:
        """Load a model; takes seconds, so call it off the event loop.

        Raises FailedPrecondition without the extra, EmbedderUnavailable where the model cannot be loaded.
        """
        try:
            import torch
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise FailedPrecondition(
                f"embedding.model {model!r} is a sentence-transformers model, and these need the extra `models`: "
                "pip install 'pointsman[models]', or set embedding.model to builtin"
            ) from error
        torch.set_num_threads(threads)
        try:
            self._model: Any = SentenceTransformer(model)
        except (OSError, ValueError, RuntimeError) as error:
            raise EmbedderUnavailable(
                f"embedding.model {model!r} cannot be loaded ({type(error).__name__}): it is no folder with a "
                "sentence-transformers model, and could not be fetched by that id"
            ) from error
        self._id = Path(model).name if Path(model).is_dir() else model
        # A copy, since the model's own changes its padding as it encodes; and a lock, since ingest counts in threads.
        self._tokenizer: Any = copy.deepcopy(self._model.tokenizer)
        self._counting = threading.Lock()
        prompts: dict[str, str] = dict(self._model.prompts or {})
        self._query_prompt = _prompt(prompts, _QUERY_PROMPTS, self._model.default_prompt_name)
        self._document_prompt = _prompt(prompts, _DOCUMENT_PROMPTS, self._model.default_prompt_name)
        self._max_tokens = _window(self._model.max_seq_length, self._tokenizer.model_max_length)
        self._dimensions = int(self._encode(["probe"], "").shape[1])
        self._checksum = _checksum(self._model, self._query_prompt, self._document_prompt)
        self._workers = Workers("embed-transformer", 1)

    @property
    def id(self) -> str:
        """The model's id, or its folder's name."""
        return self._id

    @property
    def checksum(self) -> str:
        """A sha256 over the weights and prompts, the same wherever the model was loaded from."""
        return self._checksum

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        return self._dimensions

    @property
    def max_tokens(self) -> int:
        """The model's window, its special tokens and the document prompt included."""
        return self._max_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as a document, prompt and special tokens included."""
        return self._count([self._document_prompt + encodable(text) for text in texts])

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of questions, (n, d); see Embedder."""
        checked = [checked_query(text) for text in texts]
        return await self._workers.run(partial(self._encode_queries, checked))

    async def embed_passages(self, passages: Sequence[PassageInput]) -> PassageVectors:
        """Vectors of passages and, encoded apart, of their sentences; see Embedder."""
        return await embed_separately(
            passages,
            count_tokens=self.count_tokens,
            max_tokens=self.max_tokens,
            dimensions=self.dimensions,
            encode=self._encode_documents,
        )

    async def close(self) -> None:
        """Stop the thread after the batch it is in."""
        await self._workers.close()

    async def _encode_documents(self, texts: list[str]) -> NDArray[np.float32]:
        # In slices, so that questions get their turn and a cancelled ingest ends soon.
        parts = [
            await self._workers.run(partial(self._encode, texts[first : first + _BATCH], self._document_prompt))
            for first in range(0, len(texts), _BATCH)
        ]
        return np.concatenate(parts)

    def _encode_queries(self, texts: list[str]) -> NDArray[np.float32]:
        def count(text: str) -> int:
            return self._count([self._query_prompt + text])[0]

        cut = [pieces(text, count, self._max_tokens) for text in texts]
        owners = [owner for owner, parts in enumerate(cut) for _ in parts]
        flat = [part for parts in cut for part in parts]
        vectors = self._encode([text for text, _ in flat], self._query_prompt)
        return weighted_means(vectors, [tokens for _, tokens in flat], owners, len(texts))

    def _encode(self, texts: list[str], prompt: str) -> NDArray[np.float32]:
        if not texts:
            return np.empty((0, self._dimensions), np.float32)
        vectors: NDArray[np.float32] = self._model.encode(
            texts, prompt=prompt, batch_size=_BATCH, show_progress_bar=False, convert_to_numpy=True
        )
        return normalised(vectors.astype(np.float32, copy=False))

    def _count(self, texts: list[str]) -> list[int]:
        if not texts:
            return []
        with self._counting:
            encoded = self._tokenizer(texts, truncation=False, padding=False, verbose=False)
        return [len(ids) for ids in encoded["input_ids"]]


def _prompt(prompts: dict[str, str], names: tuple[str, ...], default: str | None) -> str:
    """The first of the named prompts that the model brings, else its default one, else none."""
    named = next((prompts[name] for name in names if prompts.get(name)), "")
    return named or prompts.get(default or "", "") or ""


def _window(of_model: int | None, of_tokenizer: int | None) -> int:
    """The smaller of two limits that make sense."""
    limits = [int(limit) for limit in (of_model, of_tokenizer) if limit is not None and 0 < limit < _SANE_WINDOW]
    return min(limits, default=_ASSUMED_WINDOW)


def _checksum(model: Any, *prompts: str) -> str:  # noqa: ANN401 - torch is untyped here
    import torch

    digest = hashlib.sha256(repr(prompts).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
