"""Streams: how soon the first event and the first word are there, and how long a model's word is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.bench.figure import Figure, Figures, Report
from router.bench.stream_load import run_stream_load

if TYPE_CHECKING:
    from router.bench.callers import Caller
    from router.bench.standin import Standin

_APART: Final = 0.015
"""Seconds between a model's words: about 65 tokens a second."""
_MANY: Final = 16
_FLOOD: Final = 400


async def stream_figures(
    target: str, caller: Caller, collection: str, standin: Standin, words: int, seconds: float, report: Report
) -> Figures:
    """StreamAnswer on the standard route with a model that sends `words` at a pace, then many without waiting."""
    figures: Figures = {}
    for streams in (1, _MANY):
        report(f"streams with a model, {streams} at once")
        await standin.pace(words, _APART)
        load = await run_stream_load(target, "grpc", streams, seconds, collection=collection, caller=caller)
        at_once = f"{streams} stream{'s' if streams > 1 else ''} at once"
        goals = {"forwarded": 5.0, "released": 5.0, "first_event": 20.0} if streams == 1 else {}
        for name, key, what in (
            ("forward", "forwarded", "from the model's server sending a word to the client having it"),
            ("release", "released", "from the model's server sending what ends a word to the client having it"),
            ("first_event", "first_event", "from the call to the decision at the client, after embedding and search"),
            ("first_token", "first_token", "from the call to the first word at the client, the model's at once"),
        ):
            for rank in ("p50", "p99"):
                goal = goals.get(key) if key != "first_event" or rank == "p50" else None
                figures[f"stream_{streams}_{name}_{rank}_ms"] = Figure(
                    load[f"{key}_{rank}"] * 1e3, "ms", f"{what}; {at_once}", goal
                )
    report("streams with a model that does not wait")
    await standin.pace(_FLOOD, 0.0)
    load = await run_stream_load(target, "grpc", 4, seconds, collection=collection, caller=caller)
    figures["stream_events_per_second"] = Figure(
        load["events"] / load["seconds"], "1/s", f"events at 4 clients, the model sends {_FLOOD} words at once"
    )
    return figures
