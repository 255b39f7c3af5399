"""What a replay found, as one JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from router.percentile import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.replay.run import Replayed
    from router.replay.structure import Difference


def report(replayed: Sequence[Replayed], refused: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Counts, differences grouped, similarity and latencies; `refused` are lines that could not be sent: (id, why)."""
    equal = sum(not each.differences for each in replayed)
    return {
        "exchanges": len(replayed),
        "structurally_equal": equal,
        "structurally_equal_fraction": equal / len(replayed) if replayed else 0.0,
        "refused": [{"id": name, "error": error} for name, error in refused],
        "differences": _grouped(replayed),
        "similarity": {
            "compared": sum(each.cosine is not None for each in replayed),
            "cosine": spread([each.cosine for each in replayed if each.cosine is not None]),
            "token_f1": spread([each.f1 for each in replayed if each.f1 is not None]),
        },
        "seconds": {
            "now": spread([each.response.seconds for each in replayed if each.response.seconds is not None]),
            "now_first_byte": spread(
                [each.response.first_seconds for each in replayed if each.response.first_seconds is not None]
            ),
            "recorded": spread(
                [each.exchange.response.seconds for each in replayed if each.exchange.response.seconds is not None]
            ),
        },
        "replayed": [_line(each) for each in replayed],
    }


def _grouped(replayed: Sequence[Replayed]) -> list[dict[str, Any]]:
    """Each difference once, with the exchanges that show it; the most frequent first."""
    where: dict[tuple[str, Difference], list[str]] = {}
    for each in replayed:
        for difference in each.differences:
            where.setdefault((endpoint(each), difference), []).append(each.exchange.id)
    ordered = sorted(where.items(), key=lambda item: -len(item[1]))
    return [
        {"endpoint": place, **_difference(difference), "count": len(ids), "exchanges": ids}
        for (place, difference), ids in ordered
    ]


def endpoint(replayed: Replayed) -> str:
    """The method and path of an exchange."""
    return f"{replayed.exchange.method} {replayed.exchange.path.split('?', 1)[0]}"


def _difference(difference: Difference) -> dict[str, str]:
    return {
        "kind": difference.kind,
        "path": difference.path,
        "expected": difference.expected,
        "found": difference.found,
    }


def _line(each: Replayed) -> dict[str, Any]:
    recorded = each.exchange.response
    return {
        "id": each.exchange.id,
        "endpoint": endpoint(each),
        "status": each.response.status,
        "recorded_status": recorded.status,
        "structurally_equal": not each.differences,
        "differences": [_difference(difference) for difference in each.differences],
        "cosine": each.cosine,
        "token_f1": each.f1,
        "seconds": each.response.seconds,
        "recorded_seconds": recorded.seconds,
    }


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Mean, least, and the 10th, 50th, 90th and 99th percentile (nearest rank); None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return {
        "mean": sum(ordered) / len(ordered),
        "min": ordered[0],
        "p10": percentile(ordered, 0.1),
        "p50": percentile(ordered, 0.5),
        "p90": percentile(ordered, 0.9),
        "p99": percentile(ordered, 0.99),
    }
