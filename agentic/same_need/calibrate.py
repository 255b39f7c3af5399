"""Finds the distance up to which words left over make no difference, and says how well the whole rule then does.

    python -m agentic.same_need.calibrate [--write]

The pairs of data/pairs.jsonl are split by kind: for every kind the threshold is chosen on all other kinds (the largest
that adds at most `MAX_WRONG` to the different needs refused there), and the kind itself is judged with it. Ids tell
when a pair was written: the lexicon was made with those without a prefix at hand, and rules and lexicon were mended
after each of the later lots had been judged once (second-* to tenth-*, and fresh-*). Those of LAST were judged last,
and no rule or word was changed for them; that the distance may refuse none wrongly was decided with them in view.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agentic.same_need.comparison import Comparison, compare
from agentic.same_need.decision import Thresholds, decide

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentic.library import Embed

LAST = "eleventh-"
"""Prefix of the ids of the pairs that were judged last."""
MATCHED = 0.65
MAX_LEFT_OVER = 2
MAX_WRONG = 0.0
COSINE_DISTANCES = (0.05, 0.2)
"""Distances at which the plain rule is measured beside ours; the first is the field's."""
_CANDIDATES = tuple(round(0.05 + 0.005 * step, 3) for step in range(31))


@dataclass(frozen=True, slots=True)
class Pair:
    """Two queries written by hand, whether they ask for the same, and what kind of pair it is."""

    id: str
    a: str
    b: str
    same: bool
    kind: str


@dataclass(frozen=True, slots=True)
class Judged:
    """A pair with the distance of its embeddings and its comparison."""

    pair: Pair
    distance: float
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares (0-1): different needs that are refused, repeats that are blocked; and how many pairs of each."""

    wrongly_refused: float
    blocked: float
    different: int
    repeats: int


def read_pairs() -> tuple[Pair, ...]:
    """The pairs that come with the package."""
    text = files("agentic.same_need").joinpath("data/pairs.jsonl").read_text(encoding="utf-8")
    return tuple(Pair(**json.loads(line)) for line in text.splitlines() if line)


async def judge_pairs(pairs: Sequence[Pair], embed: Embed) -> list[Judged]:
    """Embed and compare all pairs."""
    texts = sorted({text for pair in pairs for text in (pair.a, pair.b)})
    vectors = np.concatenate([await embed(texts[start : start + 64]) for start in range(0, len(texts), 64)])
    row = {text: vectors[index] for index, text in enumerate(texts)}
    return [Judged(pair, float(1.0 - row[pair.a] @ row[pair.b]), compare(pair.a, pair.b)) for pair in pairs]


def rates(judged: Sequence[Judged], limits: Thresholds) -> Rates:
    """How the rule does with these thresholds."""
    return _rates([(item.pair.same, decide(item.comparison, item.distance, limits).same) for item in judged])


def cosine_rates(judged: Sequence[Judged], distance: float) -> Rates:
    """How the plain rule does, which refuses whatever is within a cosine distance."""
    return _rates([(item.pair.same, item.distance <= distance) for item in judged])


def _rates(refused: Sequence[tuple[bool, bool]]) -> Rates:
    """Rates of pairs of truth and verdict."""
    repeats = sum(same for same, _ in refused)
    different = len(refused) - repeats
    wrong = sum(said for same, said in refused if not same)
    blocked = sum(said for same, said in refused if same)
    return Rates(wrong / different if different else 0.0, blocked / repeats if repeats else 0.0, different, repeats)


def choose(judged: Sequence[Judged], embedder: str = "") -> Thresholds:
    """The largest threshold that refuses at most MAX_WRONG of the different needs beyond what facts and words do."""
    best = Thresholds(MATCHED, 0.0, MAX_LEFT_OVER, embedder)
    allowed = rates(judged, best).wrongly_refused + MAX_WRONG
    for candidate in _CANDIDATES:
        limits = Thresholds(MATCHED, candidate, MAX_LEFT_OVER, embedder)
        if rates(judged, limits).wrongly_refused <= allowed:
            best = limits
    return best


def held_out(judged: Sequence[Judged]) -> tuple[Rates, dict[str, Rates]]:
    """Rates over all pairs, each judged by a threshold that was chosen without its kind; and kind by kind."""
    by_kind: dict[str, Rates] = {}
    for kind in dict.fromkeys(item.pair.kind for item in judged):
        limits = choose([item for item in judged if item.pair.kind != kind])
        by_kind[kind] = rates([item for item in judged if item.pair.kind == kind], limits)
    different = sum(item.different for item in by_kind.values())
    repeats = sum(item.repeats for item in by_kind.values())
    wrong = sum(item.wrongly_refused * item.different for item in by_kind.values()) / different
    blocked = sum(item.blocked * item.repeats for item in by_kind.values()) / repeats
    return Rates(wrong, blocked, different, repeats), by_kind


async def _main(*, write: bool) -> None:
    from standard.embedding.factory import open_embedder

    async with open_embedder() as embedder:
        judged = await judge_pairs(read_pairs(), embedder.embed_queries)
        chosen = choose(judged, embedder.id)
    total, by_kind = held_out(judged)
    last = rates([item for item in judged if item.pair.id.startswith(LAST)], chosen)
    report = {
        "thresholds": asdict(chosen),
        "held_out_kinds": asdict(total),
        "judged_last": asdict(last),
        "cosine": {str(distance): asdict(cosine_rates(judged, distance)) for distance in COSINE_DISTANCES},
        "kinds": {kind: asdict(item) for kind, item in by_kind.items()},
    }
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    if write:
        path = Path(__file__).parent / "data" / "thresholds.json"
        path.write_text(json.dumps({**asdict(chosen), "held_out": asdict(total)}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write data/thresholds.json")
    asyncio.run(_main(write=parser.parse_args().write))
