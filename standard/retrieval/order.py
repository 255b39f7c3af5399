"""Order of passages for the reader: the best at the edges of the context, since the middle is read least.

Source: Liu et al., "Lost in the Middle: How Language Models Use Long Contexts", TACL 2024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

Item = TypeVar("Item")


def best_at_edges(best_first: Sequence[Item]) -> tuple[Item, ...]:
    """Place items, given best first, so that the best stands first, the second best last, and so on inwards.

    Ranks 0 1 2 3 4 come out as 0 2 4 3 1; the worst ends up in the middle.
    """
    return (*best_first[::2], *reversed(best_first[1::2]))
