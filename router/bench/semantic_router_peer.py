"""semantic-router deciding between two routes, run by the peers' own Python; nothing of ours is imported.

    PYTHON semantic_router_peer.py FILE.npz

FILE holds `vectors` (n, d), `labels` (n,) with 1 for complex, and `folds` (n,). Each fold is decided by a router whose
utterances are all questions of the other folds, the vectors handed in: no encoder, no network. Prints one JSON object:
scores (n,) (that of complex less that of simple), chosen (n,) (1 where complex was), times in seconds of deciding
single questions, and the version.
"""

import asyncio
import json
import sys
import time
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray
from semantic_router import IndexedRouter, Route  # type: ignore[import-not-found]
from semantic_router.encoders import DenseEncoder  # type: ignore[import-not-found]

TIMED = 500
NAMES = ("simple", "complex")


class HandedIn(DenseEncoder):  # type: ignore[misc]
    """Vectors that are there already, by the number that stands for a question."""

    name: str = "handed-in"
    vectors: NDArray[np.float32]

    def __call__(self, docs: list[str]) -> list[list[float]]:
        """The vectors of the questions with these numbers."""
        return [self.vectors[int(doc)].tolist() for doc in docs]

    async def acall(self, docs: list[str]) -> list[list[float]]:
        """The same."""
        return self(docs)


async def main(path: str) -> None:
    """Decide every question and print what came of it."""
    data = np.load(path)
    vectors, labels, folds = data["vectors"], data["labels"], data["folds"]
    encoder = HandedIn(vectors=vectors)
    scores, chosen = np.zeros(len(labels)), np.zeros(len(labels), dtype=int)
    times: list[float] = []
    for fold in np.unique(folds):
        routes = [
            Route(name=name, utterances=[str(n) for n in np.flatnonzero((folds != fold) & (labels == value))])
            for value, name in enumerate(NAMES)
        ]
        router = IndexedRouter(encoder=encoder, routes=routes)
        for number in np.flatnonzero(folds == fold):
            at = time.perf_counter()
            picks = await router.acall(str(number), limit=None)
            if len(times) < TIMED:
                times.append(time.perf_counter() - at)
            by_name = {pick.name: pick.confidence for pick in picks}
            scores[number] = by_name["complex"] - by_name["simple"]
            chosen[number] = picks[0].name == "complex"
    sys.stdout.write(
        json.dumps(
            {
                "scores": scores.tolist(),
                "chosen": chosen.tolist(),
                "times": times,
                "version": version("semantic-router"),
            }
        )
        + "\n"
    )


asyncio.run(main(sys.argv[1]))
