"""Parts that structured replies of models have in common: lenient about form, strict about substance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

from agentic.state import Fact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentic.state import RunState

MAX_TEXT = 400
MAX_REFS = 40


def _clip(value: object) -> object:
    return value[:MAX_TEXT] if isinstance(value, str) else value


def first_items(most: int) -> Callable[[object], object]:
    """A validator that keeps the first `most` items of a list."""

    def clip(value: object) -> object:
        return value[:most] if isinstance(value, list) else value

    return clip


def _refs(value: object) -> object:
    """Source numbers as models write them: 3, "3", "S3", "[S3]"; what is none of these is left out."""
    if not isinstance(value, list):
        return value
    found = []
    for item in value[:MAX_REFS]:
        digits = item.strip("[] sS") if isinstance(item, str) else item
        if isinstance(digits, int) and not isinstance(digits, bool):
            found.append(digits)
        elif isinstance(digits, str) and digits.isascii() and digits.isdigit() and len(digits) < 6:
            found.append(int(digits))
    return found


Line = Annotated[str, BeforeValidator(_clip)]
Lines = Annotated[list[Line], BeforeValidator(first_items(10))]
Refs = Annotated[list[int], BeforeValidator(_refs)]


class Claim(BaseModel):
    """A statement and its sources."""

    model_config = ConfigDict(extra="ignore")
    text: Line
    sources: Refs = []


Claims = Annotated[list[Claim], BeforeValidator(first_items(10))]


def known_fact(claim: Claim, state: RunState) -> Fact:
    """A claim as a fact; references to sources that the run does not hold are left out."""
    return Fact(claim.text, tuple(dict.fromkeys(ref for ref in claim.sources if state.evidence.by_ref(ref))))


def closed(properties: Mapping[str, object]) -> Mapping[str, object]:
    """The JSON Schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
