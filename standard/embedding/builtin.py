"""The embedder that is shipped: all-MiniLM-L6-v2 in int8 on onnxruntime.

Two small thread pools own all work, so that a question never waits behind an ingest and the event loop never waits at
all: one thread encodes questions, `ingest_threads` encode passages, each pass on one core. Passes hold few tokens, so
that what a layer computes stays in the processor's cache: 32 long passages in one pass take twice as long as alone.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from standard.embedding.pooling import groups, sentence_means, windows
from standard.embedding.protocol import (
    PassageVectors,
    TextTooLong,
    checked_passages,
    checked_query,
    encodable,
    normalised,
)
from standard.embedding.workers import Workers
from standard.tasks import task_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tokenizers import Encoding, Tokenizer

    from standard.embedding.artifact import Artifact
    from standard.embedding.protocol import PassageInput

# Padded tokens of one pass: enough to pay for reading the weights, few enough for the cache.
_PASS_TOKENS = 256


class BuiltinEmbedder:
    """An Embedder on onnxruntime. Whoever made it closes it."""

    def __init__(self, artifact: Artifact, *, threads: int = 1, ingest_threads: int = 2) -> None:
        """Load the model; takes some 0.2 s, so call it off the event loop."""
        from tokenizers import Tokenizer

        self._artifact = artifact
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(artifact.tokenizer))
        # The official file pads and cuts at 128 tokens.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._query_session = _open_session(artifact.model, threads)
        self._passage_session = self._query_session if threads == 1 else _open_session(artifact.model, 1)
        self._query_workers = Workers("embed-query", 1)
        self._passage_workers = Workers("embed-passage", ingest_threads)
        self._ingest_threads = ingest_threads

    @property
    def id(self) -> str:
        """The model's name in its manifest."""
        return self._artifact.id

    @property
    def checksum(self) -> str:
        """The sha256 of the model file."""
        return self._artifact.checksum

    @property
    def dimensions(self) -> int:
        """384."""
        return self._artifact.dimensions

    @property
    def max_tokens(self) -> int:
        """256, the two special tokens included."""
        return self._artifact.max_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, the two special ones included."""
        return [len(self._tokenizer.encode(encodable(text))) for text in texts]

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of questions, (n, d); see Embedder."""
        checked = [checked_query(text) for text in texts]
        return await self._query_workers.run(lambda: self._encode_queries(checked))

    async def embed_passages(self, passages: Sequence[PassageInput]) -> PassageVectors:
        """Vectors of passages and, from the same pass, of their sentences; see Embedder.

        Cancelling ends the work within one pass on each thread.
        """
        texts = checked_passages(passages)
        encodings = await self._passage_workers.run(lambda: [self._tokenizer.encode(text) for text in texts])
        for index, encoding in enumerate(encodings):
            if len(encoding) > self.max_tokens:
                raise TextTooLong(index, len(encoding), self.max_tokens)
        vectors = np.empty((len(passages), self.dimensions), np.float32)
        sentences: list[NDArray[np.float32]] = [vectors[:0]] * len(passages)

        def encode(rows: list[int]) -> None:
            hidden = self._run(self._passage_session, [encodings[row].ids for row in rows])
            for row, tokens in zip(rows, hidden, strict=True):
                encoding: Encoding = encodings[row]
                length = len(encoding)
                vectors[row] = tokens[:length].mean(axis=0)
                spans = passages[row].sentences
                sentences[row] = sentence_means(tokens[1 : length - 1], encoding.offsets[1:-1], spans, vectors[row])

        work = iter(groups([len(encoding) for encoding in encodings], _PASS_TOKENS))
        async with task_group() as tasks:
            for _ in range(self._ingest_threads):
                tasks.create_task(self._work_off(work, encode))
        return PassageVectors(normalised(vectors), tuple(sentences))

    async def close(self) -> None:
        """Stop the threads after the pass they are in; calls that wait or come later raise EmbedderUnavailable."""
        await self._query_workers.close()
        await self._passage_workers.close()

    async def _work_off(self, work: Iterator[list[int]], encode: Callable[[list[int]], None]) -> None:
        for rows in work:
            await self._passage_workers.run(partial(encode, rows))

    def _encode_queries(self, texts: list[str]) -> NDArray[np.float32]:
        rows: list[list[int]] = []
        owners: list[int] = []
        for owner, text in enumerate(texts):
            cut = windows(self._tokenizer.encode(text).ids, self.max_tokens)
            rows += cut
            owners += [owner] * len(cut)
        sums = np.zeros((len(texts), self.dimensions), np.float32)
        for group in groups([len(row) for row in rows], _PASS_TOKENS):
            for row, tokens in zip(group, self._run(self._query_session, [rows[row] for row in group]), strict=True):
                # Sums over windows weigh each by its tokens; dividing by their number would not change the direction.
                sums[owners[row]] += tokens[: len(rows[row])].sum(axis=0)
        return normalised(sums)

    def _run(self, session: Any, rows: list[list[int]]) -> NDArray[np.float32]:  # noqa: ANN401 - onnxruntime is untyped
        """Token vectors (rows, longest, d) of one pass; those beyond a row's length mean nothing."""
        lengths = np.array([len(row) for row in rows], np.int32)
        ids = np.zeros((len(rows), int(lengths.max())), np.int64)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
        hidden: NDArray[np.float32] = session.run(None, {"input_ids": ids, "lengths": lengths})[0]
        return hidden


def _open_session(model: Path, threads: int) -> Any:  # noqa: ANN401
    """A session whose threads sleep when idle. The model is fused already, so only basic optimisation is left on."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    # Shapes change with every call: a plan of memory for each would only pile up.
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # By path: of bytes it would keep a copy.
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
