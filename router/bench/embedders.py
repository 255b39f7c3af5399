"""An embedder whose vectors are made up by who measures, and which is otherwise the real one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from standard.embedding.protocol import Embedder


@dataclass(frozen=True, slots=True)
class LikeTheReal:
    """All of an Embedder but `embed_passages`; collections take it for the real one."""

    real: Embedder

    @property
    def id(self) -> str:
        """The real one's."""
        return self.real.id

    @property
    def checksum(self) -> str:
        """The real one's."""
        return self.real.checksum

    @property
    def dimensions(self) -> int:
        """The real one's."""
        return self.real.dimensions

    @property
    def max_tokens(self) -> int:
        """The real one's."""
        return self.real.max_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The real ones."""
        return self.real.count_tokens(texts)

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The real ones."""
        return await self.real.embed_queries(texts)
