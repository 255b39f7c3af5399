"""Where the model server is, and what a call may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from standard.domain.answer import Usage
    from standard.llm.protocol import Purpose


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens. `cached` is the price of input tokens that the server took from its cache."""

    input: float
    cached: float
    output: float

    def cost(self, usage: Usage) -> float:
        """US dollars of this usage; its cached tokens are part of its input tokens."""
        fresh = usage.input_tokens - usage.cached_tokens
        dollars = fresh * self.input + usage.cached_tokens * self.cached + usage.output_tokens * self.output
        return dollars / 1e6


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """One OpenAI-compatible server and the manners to use with it.

    `base_url` is the API's root, usually ending in /v1. `models` overrides `model` for single purposes. A model missing
    in `prices` costs nothing. All times are in seconds:

    - `connect_seconds`: until a connection stands.
    - `first_token_seconds`: a stream, from sending the request to the first piece of text, reasoning or tool call.
    - `idle_seconds`: a stream, between two pieces after that.

    `retries` is how many more times a call is tried after a failed connection, 429 or 5xx, with exponential backoff
    from `backoff_seconds` to `backoff_limit_seconds` and jitter, or when the server's Retry-After says. At most
    `max_concurrency` calls run at once and `max_waiting` wait for a place; one more is refused. Retries are at most
    `retry_budget` (0 to 1) of the calls, but for a few. After `breaker_failures` failures in a row, of any calls, the
    server is left alone for `breaker_seconds`; then one call tries it.
    """

    base_url: str
    model: str
    api_key: str = field(default="", repr=False)
    models: Mapping[Purpose, str] = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)
    connect_seconds: float = 5.0
    first_token_seconds: float = 30.0
    idle_seconds: float = 15.0
    retries: int = 2
    backoff_seconds: float = 0.3
    backoff_limit_seconds: float = 8.0
    max_concurrency: int = 32
    max_waiting: int = 128
    retry_budget: float = 0.1
    breaker_failures: int = 5
    breaker_seconds: float = 10.0

    def model_for(self, purpose: Purpose) -> str:
        """The model that serves this purpose."""
        return self.models.get(purpose) or self.model
