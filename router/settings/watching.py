"""[canary] [log]: what operators see."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from router.settings.sections import Seconds, Section


class CanarySettings(Section):
    """[canary] golden questions, asked on a schedule by every server; pointsman_canary_ok tells how it went."""

    file: str = Field(
        "",
        description='JSONL of {"id", "question", "supporting_ids": [...]}, at most 100; empty = no canary. '
        "A question passes when all those documents are cited.",
    )
    collection: str = Field("default", min_length=1, description="Collection that they are asked in.")
    interval_seconds: Seconds = Field(300.0, description="Pause between two rounds.")
    timeout_seconds: Seconds = Field(60.0, description="Time limit of one question.")


class LogSettings(Section):
    """[log] structured logs on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe level shown.")
    format: Literal["auto", "json", "console"] = Field("auto", description="auto = console on a terminal, else json.")
