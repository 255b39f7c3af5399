"""Measure the shipped model on this machine and write the figures into its card.

    python -m standard.embedding.export.measure --golden tests/unit/embedding [--write]

Times are wall-clock, through the embedder as it serves; run it on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from standard.embedding.artifact import FOLDER, read_artifact
from standard.embedding.builtin import BuiltinEmbedder
from standard.embedding.protocol import PassageInput

if TYPE_CHECKING:
    from collections.abc import Sequence

_BEGIN, _END = "<!-- figures: begin -->", "<!-- figures: end -->"
_QUESTION = (
    "what is the most that the head of a regional sales office may approve for travel within one year "
    "without asking the board or its chair for a written consent that is kept on file"
)
_SENTENCE = "The port and the shipping company agreed to suspend the passenger fee while ferries sailed empty."


def text_of(embedder: BuiltinEmbedder, tokens: int) -> str:
    """A question of exactly so many tokens, special ones included."""
    words = _QUESTION.split()
    texts = [" ".join(words[:count]) for count in range(1, len(words) + 1)]
    return next(text for text in texts if embedder.count_tokens([text])[0] == tokens)


async def question_ms(embedder: BuiltinEmbedder, tokens: int, times: int) -> float:
    """Median milliseconds of one question at a time."""
    text = text_of(embedder, tokens)
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        await embedder.embed_queries([text])
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[times // 10 :]) * 1000


async def passages_per_second(threads: int, count: int) -> float:
    """Passages of about 200 tokens, each with ten sentences, in batches of 64 as ingest sends them."""
    embedder = BuiltinEmbedder(read_artifact(), ingest_threads=threads)
    text = " ".join([_SENTENCE] * 11)
    spans = tuple((place * (len(_SENTENCE) + 1), place * (len(_SENTENCE) + 1) + len(_SENTENCE)) for place in range(10))
    began = time.perf_counter()
    for _ in range(count // 64):
        await embedder.embed_passages([PassageInput(text, spans)] * 64)
    taken = time.perf_counter() - began
    await embedder.close()
    return count // 64 * 64 / taken


async def parity(embedder: BuiltinEmbedder, golden: Path) -> dict[str, tuple[float, float]]:
    """Mean and least cosine to the fp32 vectors of each group of golden texts."""
    texts: dict[str, list[str]] = json.loads((golden / "golden.json").read_text(encoding="utf-8"))
    with np.load(golden / "golden.npz", allow_pickle=False) as vectors:
        cosines = {
            group: np.einsum("ij,ij->i", await embedder.embed_queries(own), vectors[group])
            for group, own in texts.items()
        }
    return {group: (float(values.mean()), float(values.min())) for group, values in cosines.items()}


async def measure(golden: Path) -> list[tuple[str, str]]:
    """All figures, as rows of what and value."""
    began = time.perf_counter()
    artifact = read_artifact()
    verified = time.perf_counter()
    embedder = BuiltinEmbedder(artifact)
    loaded = time.perf_counter()
    rows = [
        (f"cosine to fp32, {group}: mean / least", f"{mean:.4f} / {least:.4f}")
        for group, (mean, least) in (await parity(embedder, golden)).items()
    ]
    for tokens in (12, 23):
        median = await question_ms(embedder, tokens, 500)
        rows += [(f"question of {tokens} tokens, p50, ms", f"{median:.2f}")]
    await embedder.close()
    for threads in (1, 2):
        speed = await passages_per_second(threads, 256)
        rows += [(f"passages of 200 tokens with their sentences, a second, {threads} thread(s)", f"{speed:.0f}")]
    unit = 1024**2 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    rows += [
        ("verifying the files, s", f"{verified - began:.3f}"),
        ("loading, s", f"{loaded - verified:.3f}"),
        ("peak memory of this process, all of it, MB", f"{peak:.0f}"),
        ("load average of the machine meanwhile (idle: below 1)", f"{os.getloadavg()[0]:.1f}"),
        ("machine", f"{_processor()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"),
    ]
    return rows


def _processor() -> str:
    """The processor's name and whether it has the instructions that matter."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    about = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = set(about.get("flags", "").split())
    known = [name for name in ("avx2", "avx512_vnni", "avx_vnni", "amx_int8") if name in flags]
    return f"{about.get('model name', platform.machine())} ({', '.join(known) or 'no flags known'})"


def written(card: str, rows: Sequence[tuple[str, str]]) -> str:
    """The card with its figures replaced."""
    table = "\n".join(["| what | value |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows)])
    before, rest = card.split(_BEGIN)
    return f"{before}{_BEGIN}\n{table}\n{_END}{rest.split(_END)[1]}"


def main(arguments: list[str]) -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser(prog="python -m standard.embedding.export.measure")
    parser.add_argument("--golden", type=Path, required=True, help="folder with golden.json and golden.npz")
    parser.add_argument("--write", action="store_true", help="put the figures into the model card")
    options = parser.parse_args(arguments)
    rows = asyncio.run(measure(options.golden))
    for what, value in rows:
        sys.stdout.write(f"{what}: {value}\n")
    if options.write:
        card = FOLDER / "README.md"
        card.write_text(written(card.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
