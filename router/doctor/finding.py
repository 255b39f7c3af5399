"""What `pointsman doctor` says of one part of an installation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one part; `facts` are its values for programs, `advice` the way out ("" where all is well)."""

    part: str
    status: Literal["ok", "warning", "failed"]
    found: str
    advice: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
