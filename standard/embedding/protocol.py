"""What an embedder is: the one protocol that routing, retrieval, ingest and the agentic tools know.

Vectors are float32, L2-normalised, and a text's vector does not depend on the texts encoded with it. Text is treated
alike by every backend: NUL and lone surrogates count as U+FFFD, blank text is refused, and nothing is cut silently: a
passage beyond the window is refused; a question beyond it is encoded in windows, whose mean by length is its vector.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from standard.domain.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

# Encoding a question costs time in proportion to its length; this is some 16,000 tokens, a fifth of a second.
MAX_QUERY_CHARS = 65_536
_UNENCODABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class PassageInput:
    """A passage to embed: its text and its sentences as half-open spans of code points of the text, in order."""

    text: str
    sentences: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PassageVectors:
    """Vectors of n passages: `vectors` is (n, d), `sentence_vectors[i]` (m_i, d) for the sentences of passage i."""

    vectors: NDArray[np.float32]
    sentence_vectors: tuple[NDArray[np.float32], ...]


class Embedder(Protocol):
    """Turns text into L2-normalised vectors. Safe to share between tasks of one event loop."""

    @property
    def id(self) -> str:
        """The model's name; kept with a collection, whose vectors only the same model may be compared with."""
        ...

    @property
    def checksum(self) -> str:
        """Lower-case hex sha256 that changes when vectors would; kept with a collection beside `id`."""
        ...

    @property
    def dimensions(self) -> int:
        """The length d of every vector."""
        ...

    @property
    def max_tokens(self) -> int:
        """The model's window: a passage fits if `count_tokens` of it is not above this."""
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens each text takes in the window, the model's own marks included. Quick, never blocks on I/O."""
        ...

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of questions, (n, d). Those longer than the window are encoded in windows.

        Raises InvalidInput (blank, or beyond MAX_QUERY_CHARS), EmbedderUnavailable, Overloaded.
        """
        ...

    async def embed_passages(self, passages: Sequence[PassageInput]) -> PassageVectors:
        """Vectors of passages and of their sentences.

        Raises TextTooLong, InvalidInput (blank text, a span outside its text), EmbedderUnavailable.
        """
        ...


class TextTooLong(InvalidInput):
    """A passage does not fit the model's window. `index` is its place in the call, `tokens` what it would take."""

    reason = "TEXT_TOO_LONG"

    def __init__(self, index: int, tokens: int, max_tokens: int) -> None:
        super().__init__(
            f"passages[{index}].text",
            f"has {tokens} tokens, the embedding model takes {max_tokens}; split it into smaller chunks",
        )
        self.index = index
        self.tokens = tokens
        self.max_tokens = max_tokens


def encodable(text: str) -> str:
    """Replace NUL and lone surrogates, which tokenizers and JSON refuse, by U+FFFD; positions stay as they are."""
    return _UNENCODABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def checked_query(text: str) -> str:
    """Return a question as backends may encode it. Raises InvalidInput where it is blank or beyond MAX_QUERY_CHARS."""
    if not text or text.isspace():
        raise InvalidInput("question", "is blank; there is nothing to embed")
    if len(text) > MAX_QUERY_CHARS:
        raise InvalidInput("question", f"has {len(text)} characters; at most {MAX_QUERY_CHARS} can be embedded")
    return encodable(text)


def checked_passages(passages: Sequence[PassageInput]) -> list[str]:
    """Return the passages' texts as backends may encode them, spans checked. Raises InvalidInput."""
    texts = []
    for index, passage in enumerate(passages):
        if not passage.text or passage.text.isspace():
            raise InvalidInput(f"passages[{index}].text", "is blank; there is nothing to embed")
        for place, (start, end) in enumerate(passage.sentences):
            if not 0 <= start < end <= len(passage.text):
                raise InvalidInput(
                    f"passages[{index}].sentences[{place}]",
                    f"[{start}, {end}) is no span of a text of {len(passage.text)} characters",
                )
        texts.append(encodable(passage.text))
    return texts


def normalised(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Divide the rows of (n, d) by their lengths; a row of zeros stays as it is."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    unit: NDArray[np.float32] = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit
