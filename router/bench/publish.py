"""Pages out of a run's results: docs/speed.md and the table in README.md. Nobody types a figure.

    python -m router.bench.publish [--check]

reads docs/evaluation/speed/results.json, which `pointsman bench --out docs/evaluation/speed` wrote. With --check
nothing is written; it fails where a page is not what the results make of it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from router.bench.report import bench_report, conditions, rows
from router.evaluation.report import Table, markdown, table_lines
from router.written import write_at_once

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = Path("docs/evaluation/speed/results.json")
_BEGIN, _END = "<!-- figures of docs/evaluation/speed: make bench-page -->", "<!-- end of figures -->"
_FIRST: Final = (
    ("CPU of a unary Answer beside embedding, database and model, over a bare grpc.aio echo", "added_cpu_ratio"),
    ("the same with every call traced", "traced_cpu_ratio"),
    ("latency that adds to the echo's p50, 1 connection", "added_latency_p50_ms"),
    ("HTTP façades, added to gRPC's p50", "http_added_p50_ms"),
    ("embed a question, p50", "embed_p50_ms"),
    ("classify over gRPC, p50", "classify_p50_ms"),
    ("search 7,000 passages, p50", "retrieve_7000_p50_ms"),
    ("search 100,000 passages, p50", "retrieve_100000_p50_ms"),
    ("that over its bare SQL", "retrieve_100000_over_sql"),
    ("first event of a stream, p50", "stream_1_first_event_p50_ms"),
    ("a model's word to the client, p50, held until its end is known", "stream_1_forward_p50_ms"),
    ("the same from what ends it, p50", "stream_1_release_p50_ms"),
    ("cancelled: the model's connection closed, p99", "cancel_llm_p99_ms"),
    ("cancelled: the SQL statement gone, p99", "cancel_sql_p99_ms"),
    ("standard route without a model, 1 connection", "standard_1_calls_per_second"),
    ("the same, 64 connections", "standard_64_calls_per_second"),
    ("ingest", "ingest_chunks_per_second"),
    ("CPU of a chat completion through the gateway, passages at hand", "chat_hollow_cpu_us"),
    ("CPU of a chat completion through LiteLLM's proxy", "chat_litellm_cpu_us"),
    ("start to SERVING, database up", "start_seconds"),
    ("resident memory after questions", "resident_mb"),
)


def page(results: Mapping[str, Any]) -> str:
    """docs/speed.md: the report, its charts where the run left them."""
    written = markdown(bench_report(results))
    charts = f"{RESULTS.parent.relative_to('docs').as_posix()}/"
    return re.sub(r"(!\[[^\n]*\]\()([a-z_]+\.svg\))", rf"\1{charts}\2", written)


def readme(text: str, results: Mapping[str, Any]) -> str:
    """The README with its table of figures made anew. Raises ValueError where it has no place for one."""
    before, begins, rest = text.partition(_BEGIN)
    _, ends, after = rest.partition(_END)
    if not begins or not ends:
        raise ValueError(f"README.md has no {_BEGIN} … {_END}")
    table = Table(("what", "measured", "goal"), rows(results["figures"], _FIRST))
    lines = [_BEGIN, "", conditions(results)[0], "", *table_lines(table), "", _END]
    return before + "\n".join(lines) + after


def pages(root: Path) -> dict[Path, str]:
    """Every page that the results of a checkout make, by its path."""
    results = json.loads((root / RESULTS).read_text(encoding="utf-8"))
    front = root / "README.md"
    return {root / "docs" / "speed.md": page(results), front: readme(front.read_text(encoding="utf-8"), results)}


def main(root: Path, *, check: bool) -> int:
    """Write the pages, or say which are not what they should be; the exit code."""
    stale = 0
    for path, text in pages(root).items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            sys.stderr.write(f"{path.relative_to(root)} is not what {RESULTS} makes of it; run `make bench-page`\n")
            stale = 1
        else:
            write_at_once(path, text)
    return stale


if __name__ == "__main__":
    sys.exit(main(ROOT, check="--check" in sys.argv[1:]))
