"""Which embedder to open, and how."""

from __future__ import annotations

from dataclasses import dataclass, field

BUILTIN = "builtin"
ENDPOINT_PREFIX = "openai:"


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """Everything `open_embedder` needs; the names are those of the [embedding] settings.

    `model` is "builtin", "openai:NAME" for an OpenAI-compatible endpoint at `base_url`, or else a sentence-transformers
    id or folder. `timeout_seconds` bounds a call to an endpoint, retries included.

    `threads` encode a question (1 is fastest for short ones), `ingest_threads` passages. A batch of concurrent
    questions holds at most `max_batch`, waits at most `batch_delay_seconds` for company while others are about, and not
    at all when idle; at most `max_queued` questions wait.

    `dimensions` and `max_tokens` are for endpoints, which do not tell them: None asks the endpoint for the first with a
    probe at the start, and assumes for the second what is safe (see `endpoint`).
    """

    model: str = BUILTIN
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    timeout_seconds: float = 10.0
    threads: int = 1
    ingest_threads: int = 2
    batch_delay_seconds: float = 0.001
    max_batch: int = 32
    max_queued: int = 1024
    dimensions: int | None = None
    max_tokens: int | None = None
