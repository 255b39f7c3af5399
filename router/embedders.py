"""Which embedders there are besides the gateway's own: from the settings, and from what a collection remembers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from router.configs import embedder_config
from standard.corpus.collections import EmbedderSpec
from standard.domain.errors import FailedPrecondition, InvalidInput
from standard.embedding.config import BUILTIN, ENDPOINT_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.access.identity import Identity
    from router.settings import Settings
    from standard.embedding.config import EmbeddingConfig

_MAX_MODEL, _MAX_URL = 512, 2048


def own_spec(settings: Settings) -> EmbedderSpec:
    """How others may open the gateway's own embedder."""
    own = settings.embedding
    return EmbedderSpec(own.model, own.base_url, own.dimensions, own.max_tokens)


def configure(settings: Settings) -> Callable[[EmbedderSpec], EmbeddingConfig]:
    """How to open what a collection remembers of its embedder.

    A key comes from the section whose base_url is the same, so that none is sent anywhere else.
    """
    sections = (settings.embedding, *settings.embedders.values())
    keys = {each.base_url: each.api_key.get_secret_value() for each in sections if each.base_url and each.api_key}

    def config_of(spec: EmbedderSpec) -> EmbeddingConfig:
        if not spec.named:
            return replace(
                embedder_config(settings.embedding),
                model=spec.model,
                base_url=spec.base_url,
                dimensions=spec.dimensions,
                max_tokens=spec.max_tokens,
                api_key=keys.get(spec.base_url, ""),
            )
        section = settings.embedders.get(spec.model)
        if section is None:
            raise FailedPrecondition(f"the settings have no section [embedders.{spec.model}], which a collection needs")
        return embedder_config(section)

    return config_of


def wanted_spec(
    settings: Settings, identity: Identity, model: str, base_url: str, dimensions: int, max_tokens: int
) -> EmbedderSpec:
    """The embedder that a caller names; see StartReembeddingRequest.

    Whoever may name an address or a folder has the gateway reach for it, so that takes the role operator. Raises
    InvalidInput, PermissionDenied.
    """
    if (base_url or dimensions or max_tokens) and not model.startswith(ENDPOINT_PREFIX):
        raise InvalidInput("base_url", "base_url, dimensions and max_tokens are for models openai:NAME")
    if not model:
        return own_spec(settings)
    if model in settings.embedders:
        return EmbedderSpec(model, named=True)
    if model == BUILTIN:
        return EmbedderSpec(BUILTIN)
    identity.require("operator")
    if len(model) > _MAX_MODEL or not model.isprintable():
        raise InvalidInput("model", f"must have at most {_MAX_MODEL} printable characters")
    if not model.startswith(ENDPOINT_PREFIX):
        return EmbedderSpec(model)
    if len(base_url) > _MAX_URL or not base_url.isprintable() or urlsplit(base_url).scheme not in ("http", "https"):
        raise InvalidInput("base_url", "must be the http(s) URL of the endpoint of openai:NAME")
    if "@" in urlsplit(base_url).netloc:
        raise InvalidInput("base_url", "must hold no credentials; put the key into a section [embedders.NAME]")
    if not 0 <= dimensions <= 4000:
        raise InvalidInput("dimensions", "must be 1 to 4,000; 0 = what the endpoint gives")
    if max_tokens and not 32 <= max_tokens <= 1_000_000:
        raise InvalidInput("max_tokens", "must be 32 to 1,000,000; 0 = as in [embedding]")
    return EmbedderSpec(model, base_url, dimensions or None, max_tokens or None)
