"""Who a load generator calls as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY_VARIABLE: Final = "POINTSMAN_API_KEY"
"""Where load generators find their key: an argument would stand in every list of processes."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A key as load generators find it."""

    token: str

    @property
    def environment(self) -> Mapping[str, str]:
        """What their process's environment holds besides."""
        return {KEY_VARIABLE: self.token}


NOBODY: Final = Caller("")
