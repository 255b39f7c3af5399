"""A replay's report as one HTML page that needs nothing else: no script, no font, no address."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1a1d21; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .35rem .6rem; }
th { border-bottom: 2px solid #c7ccd3; } td { border-bottom: 1px solid #e4e7eb; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; } code { font-size: .9em; word-break: break-word; }
.good { color: #146c43; } .bad { color: #a61b29; font-weight: 600; }
@media (prefers-color-scheme: dark) { body { background: #15181c; color: #e6e8eb; }
  td { border-color: #2b3036; } th { border-color: #4a525b; } .good { color: #5fd39b; } .bad { color: #ff8b94; } }
"""


def page(report: Mapping[str, Any], title: str) -> str:
    """The page; everything of a response is escaped."""
    equal, count = report["structurally_equal"], report["exchanges"]
    verdict = "good" if equal == count and not report["refused"] else "bad"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>Replay of {escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>Replay of {escape(title)}</h1>",
        f"<p class='{verdict}'>{equal} of {count} exchanges are structurally equal.</p>",
        "<h2>Differences</h2>",
        _table(
            ("Endpoint", "Kind", "Where", "Recorded", "Now", "Exchanges"),
            (
                (item["endpoint"], item["kind"], item["path"], item["expected"], item["found"], item["count"])
                for item in report["differences"]
            ),
            "None.",
        ),
        "<h2>Answers and times</h2>",
        _table(
            ("", "Mean", "Min", "p10", "p50", "p90", "p99"),
            (
                (name, *(f"{values[key]:.3f}" for key in ("mean", "min", "p10", "p50", "p90", "p99")))
                for name, values in (
                    ("Cosine similarity of answers", report["similarity"]["cosine"]),
                    ("Shared words (token F1)", report["similarity"]["token_f1"]),
                    ("Seconds now", report["seconds"]["now"]),
                    ("Seconds to the first byte now", report["seconds"]["now_first_byte"]),
                    ("Seconds as recorded", report["seconds"]["recorded"]),
                )
                if values is not None
            ),
            "Nothing was compared.",
        ),
        "<h2>Exchanges</h2>",
        _table(
            ("Id", "Endpoint", "Status", "Structure", "Cosine", "F1", "Seconds"),
            (
                (
                    line["id"],
                    line["endpoint"],
                    line["status"],
                    "equal" if line["structurally_equal"] else f"{len(line['differences'])} differences",
                    _figure(line["cosine"]),
                    _figure(line["token_f1"]),
                    _figure(line["seconds"]),
                )
                for line in report["replayed"]
            ),
            "None.",
        ),
    ]
    if report["refused"]:
        rows = ((item["id"], item["error"]) for item in report["refused"])
        parts += ["<h2>Lines that could not be sent</h2>", _table(("Id", "Why"), rows, "")]
    return "".join([*parts, "</body></html>\n"])


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> str:
    lines = ["".join(_cell(value) for value in row) for row in rows]
    if not lines:
        return f"<p>{escape(empty)}</p>"
    columns = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<table><tr>{columns}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _cell(value: object) -> str:
    text = str(value)
    number = text.replace(".", "", 1).lstrip("-").isdigit()
    return f"<td class='number'>{escape(text)}</td>" if number else f"<td><code>{escape(text)}</code></td>"
