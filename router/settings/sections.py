"""What every section of the settings file is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0, le=86_400.0)]
Port = Annotated[int, Field(ge=0, le=65_535)]


class Section(BaseModel):
    """A section of the settings file; unknown keys are refused so that a typo is seen."""

    model_config = ConfigDict(extra="forbid", frozen=True)
