"""An OpenAI-compatible /v1/embeddings endpoint.

What comes back is checked before it is believed: one finite, non-zero vector of the right length for each text. Waits
are bounded by one deadline a call, retries (of connections, 408, 409, 429 and 5xx, by the SDK) included.

An endpoint tells neither its window nor its tokenizer. Tokens are estimated, some 10-40% high on prose, against
`max_tokens` of the configuration; unset it is 8191 for OpenAI's text-embedding models and a cautious 512 for others,
since some servers cut a longer text without a word.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from standard import semconv, spans
from standard.domain.errors import EmbedderUnavailable, FailedPrecondition
from standard.embedding.longtext import pieces, weighted_means
from standard.embedding.protocol import checked_query, encodable, normalised
from standard.embedding.separate import embed_separately
from standard.llm.tokens import estimate_tokens
from standard.tasks import task_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    import openai

    from standard.embedding.protocol import PassageInput, PassageVectors

_OPENAI_WINDOW = 8191
_CAUTIOUS_WINDOW = 512
_SPECIAL_TOKENS = 2
_TEXTS_A_CALL = 64
_TOKENS_A_CALL = 100_000
_INGEST_CALLS = 4
_RETRIES = 2
_REFUSALS = {
    401: "check embedding.api_key",
    403: "check embedding.api_key",
    404: "check embedding.base_url and the name in embedding.model",
    400: "if texts are too long for it, set embedding.max_tokens to its window",
    413: "if texts are too long for it, set embedding.max_tokens to its window",
    422: "if texts are too long for it, set embedding.max_tokens to its window",
}


class EndpointEmbedder:
    """An Embedder on an endpoint. Made by `connect`; whoever made it closes it."""

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        api_key: str = "",
        timeout_seconds: float = 10.0,
        dimensions: int | None = None,
        max_tokens: int | None = None,
    ) -> None:
        import openai

        if not base_url.startswith(("http://", "https://")):
            raise FailedPrecondition("embedding.base_url must be an http(s) URL for a model openai:NAME")
        # What the SDK would take from OPENAI_* variables is set or left out here: settings are known in one place.
        left_out = ["OpenAI-Organization", "OpenAI-Project"] + ([] if api_key else ["Authorization"])
        self._headers: dict[str, str | openai.Omit] = {name: openai.Omit() for name in left_out}
        self._client = openai.AsyncOpenAI(
            base_url=base_url, api_key=api_key or "none", timeout=timeout_seconds, max_retries=_RETRIES
        )
        self._server = _without_credentials(base_url)
        self._model = model
        url = urlsplit(base_url)
        self._attributes: dict[str, spans.Value] = {
            semconv.OPERATION: semconv.EMBEDDINGS,
            semconv.PROVIDER: semconv.OPENAI,
            semconv.REQUEST_MODEL: model,
            semconv.SERVER_ADDRESS: url.hostname or "",
            semconv.SERVER_PORT: url.port or (443 if url.scheme == "https" else 80),
        }
        self._timeout = timeout_seconds
        self._dimensions = dimensions or 0
        self._max_tokens = max_tokens or (_OPENAI_WINDOW if model.startswith("text-embedding-") else _CAUTIOUS_WINDOW)
        self._ingest_calls = asyncio.Semaphore(_INGEST_CALLS)

    async def connect(self) -> None:
        """Learn the length of vectors with a probe, where it was not given. Raises EmbedderUnavailable."""
        if not self._dimensions:
            self._dimensions = (await self._call(["probe"])).shape[1]

    @property
    def id(self) -> str:
        """`openai:` and the model's name."""
        return f"openai:{self._model}"

    @property
    def checksum(self) -> str:
        """A sha256 of name and dimensions: an endpoint does not tell when its weights change."""
        return hashlib.sha256(f"{self.id} {self._dimensions}".encode()).hexdigest()

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        return self._dimensions

    @property
    def max_tokens(self) -> int:
        """The window that is assumed or was configured."""
        return self._max_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Estimated tokens of each text, two for special tokens included."""
        return [estimate_tokens(encodable(text)) + _SPECIAL_TOKENS for text in texts]

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of questions, (n, d); see Embedder."""
        cut = [pieces(checked_query(text), self._count, self._max_tokens) for text in texts]
        owners = [owner for owner, parts in enumerate(cut) for _ in parts]
        flat = [part for parts in cut for part in parts]
        vectors = await self._encode([text for text, _ in flat])
        return weighted_means(vectors, [tokens for _, tokens in flat], owners, len(texts))

    async def embed_passages(self, passages: Sequence[PassageInput]) -> PassageVectors:
        """Vectors of passages and, encoded apart, of their sentences; see Embedder."""
        return await embed_separately(
            passages,
            count_tokens=self.count_tokens,
            max_tokens=self.max_tokens,
            dimensions=self.dimensions,
            encode=self._encode_passages,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _count(self, text: str) -> int:
        return self.count_tokens([text])[0]

    async def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Vectors of any number of texts, (n, d), in as many calls as they need."""
        if not texts:
            return np.empty((0, self._dimensions), np.float32)
        parts = [await self._call(call) for call in _split(texts, self.count_tokens(texts))]
        return np.concatenate(parts)

    async def _encode_passages(self, texts: list[str]) -> NDArray[np.float32]:
        """Like `_encode`, with a few calls at once."""

        async def call(part: list[str]) -> NDArray[np.float32]:
            async with self._ingest_calls:
                return await self._call(part)

        async with task_group() as group:
            tasks = [group.create_task(call(part)) for part in _split(texts, self.count_tokens(texts))]
        return np.concatenate([task.result() for task in tasks])

    async def _call(self, texts: list[str]) -> NDArray[np.float32]:
        """One call: L2-normalised vectors, (n, d)."""
        import openai

        try:
            with spans.span(f"{semconv.EMBEDDINGS} {self._model}", self._attributes, client=True) as opened:
                opened.set("pointsman.embeddings.texts", len(texts))
                async with asyncio.timeout(self._timeout):
                    response = await self._client.embeddings.create(
                        model=self._model,
                        input=texts,
                        encoding_format="float",
                        extra_headers={**self._headers, **opened.headers()},
                    )
            return self._checked(response, len(texts))
        except (TimeoutError, openai.APITimeoutError) as error:
            raise self._failed(f"did not answer within {self._timeout:g} s") from error
        except openai.APIConnectionError as error:
            raise self._failed("cannot be reached; check embedding.base_url") from error
        except openai.APIStatusError as error:
            advice = _REFUSALS.get(error.status_code, "try again later")
            wait = _retry_after(error.response.headers.get("retry-after"))
            raise self._failed(f"answered {error.status_code}; {advice}", wait) from error
        except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
            raise self._failed(f"gave no embeddings: {type(error).__name__}") from error

    def _checked(self, response: Any, count: int) -> NDArray[np.float32]:  # noqa: ANN401 - whatever the server sent
        items = sorted(response.data, key=lambda item: item.index)
        if [item.index for item in items] != list(range(count)):
            raise self._failed(f"gave {len(items)} vectors for {count} texts")
        vectors = np.array([item.embedding for item in items], np.float32)
        if vectors.ndim != 2 or vectors.shape[1] != (self._dimensions or vectors.shape[1]):
            raise self._failed(
                f"gave vectors of {vectors.shape[-1]} dimensions, not {self._dimensions}; check embedding.dimensions"
            )
        unit = normalised(vectors)
        if not (np.isfinite(vectors).all() and unit.any(axis=1).all()):
            raise self._failed("gave a vector that is zero or not finite")
        return unit

    def _failed(self, what: str, retry_after: float | None = None) -> EmbedderUnavailable:
        message = f"The embedding endpoint at {self._server} {what}."
        return EmbedderUnavailable(message, retry_after_seconds=retry_after)


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _split(texts: list[str], tokens: list[int]) -> list[list[str]]:
    """Cut a list of texts into calls that keep both bounds of a call, in order."""
    calls: list[list[str]] = []
    room = 0
    for text, size in zip(texts, tokens, strict=True):
        if not calls or len(calls[-1]) == _TEXTS_A_CALL or size > room:
            calls.append([])
            room = _TOKENS_A_CALL
        calls[-1].append(text)
        room -= size
    return calls


def _retry_after(header: str | None) -> float | None:
    """Seconds of a Retry-After header in its plain form; a date is left to the caller's own patience."""
    try:
        return min(max(float(header or ""), 0.0), 3600.0)
    except ValueError:
        return None
