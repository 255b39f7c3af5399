"""[canary] [log] [traces]: what operators see."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from router.settings.sections import Fraction, Seconds, Section


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
    access: Literal["all", "errors", "nothing"] = Field(
        "all", description="A line a call at level info: of all, of those that failed, of none; probes have none."
    )
    questions: Literal["text", "hash", "nothing"] = Field(
        "nothing",
        description="What logs may hold of questions, queries, passages and answers, where journal.questions keeps no "
        "less.",
    )


class TraceSettings(Section):
    """[traces] OpenTelemetry spans, sent to a collector."""

    endpoint: str = Field(
        "",
        pattern=r"^(https?://[^\s/@]+(/\S*)?)?$",
        description="OTLP over HTTP, for instance http://localhost:4318; empty = nothing is recorded, and a caller's "
        "trace context is passed on as it came.",
    )
    headers: dict[str, SecretStr] = Field(default_factory=dict, description="Sent along, such as a key: name = value.")
    ratio: Fraction = Field(
        0.1, description="Share of calls that are recorded, where the caller's trace context does not say."
    )
    content: bool = Field(
        False,
        description="Write questions, prompts, passages and answers on spans; needs journal.questions = text.",
    )
    service_name: str = Field("pointsman", min_length=1, max_length=128, description="Under which name.")
    queue: int = Field(4096, ge=1, le=1_000_000, description="Spans that may wait to be sent; more are dropped.")
    timeout_seconds: Seconds = Field(5.0, description="Longest time of sending once, retries included.")
    flush_seconds: Seconds = Field(3.0, description="Time for what still waits when the server stops.")
