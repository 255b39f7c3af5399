"""The page of `pointsman bench`: its results as tables and charts, made of nothing but what was measured."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from router.evaluation.plots import BarChart, Bars, Line, LineChart
from router.evaluation.report import Report, Section, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from router.bench.figure import Figures
    from router.bench.run import Plan

    Measured = Mapping[str, Mapping[str, Any]]

_PROXIES: Final = {
    "direct": "the model's server itself",
    "hollow": "pointsman, passages at hand",
    "pointsman": "pointsman, the whole",
    "litellm": "LiteLLM's proxy",
}
_ROUTES: Final = {
    "search": "search",
    "classify": "classify, text alone",
    "standard_extractive": "standard, no model",
    "agentic_by_rules": "agentic, no model",
    "standard": "standard, with a model",
    "agentic": "agentic, with a model",
}
_STAGES: Final = ("read", "cut", "embed", "write")
_LEFT_OUT: Final = "LiteLLM and semantic-router were left out of this run: no Python that has them was named (--peers)."


def bench_results(machine: Mapping[str, str], plan: Plan, figures: Figures) -> dict[str, Any]:
    """Everything of a run as JSON values."""
    return {
        "machine": dict(machine),
        "plan": {
            "sizes": list(plan.sizes),
            "seconds": plan.seconds,
            "rounds": plan.rounds,
            "connections": list(plan.connections),
            "peers": plan.peers is not None,
        },
        "figures": {name: asdict(figure) for name, figure in figures.items()},
    }


def bench_report(results: Mapping[str, Any]) -> Report:
    """Return the page of what `bench_results` returned."""
    measured: Measured = results["figures"]
    sections = [
        _goals(measured),
        _added(measured),
        _streams(measured),
        _throughput(measured, results["plan"]["connections"]),
        _searches(measured, results["plan"]["sizes"]),
        _proxies(measured),
        _decisions(measured),
        _ingest(measured),
        _costs(measured),
        _everything(measured),
    ]
    return Report("Speed", sections, [*conditions(results), *([] if results["plan"]["peers"] else [_LEFT_OUT])])


def conditions(results: Mapping[str, Any]) -> list[str]:
    """On what, when and how it was measured: paragraphs."""
    here, plan = results["machine"], results["plan"]
    return [
        (
            f"Measured on {here['date']} on {here['cores']} cores of {here['processor']} ({here['system']}, Python"
            f" {here['python']}), load average {here['load_before']} before the run and {here['load_after']} after it:"
            f" `pointsman bench --seconds {plan['seconds']:g}`, everything in one run, the load generators, the"
            " database and the model's server on the same cores."
        ),
        (
            "Unless a row says otherwise API keys are asked for, every limit of a tenant is set, metrics are kept and"
            " traces are sent to a collector at the share that the settings say (a tenth by default). The language"
            " model is a stand-in that answers at once or at a set pace, so that its time is not in the figures."
        ),
    ]


def shown(figure: Mapping[str, Any]) -> str:
    """A figure as people read it: three digits that count, and its unit."""
    value = figure["value"]
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f} {figure['unit']}".strip()


def met(figure: Mapping[str, Any]) -> str:
    """Whether a figure is what it should be."""
    return "yes" if figure["value"] <= figure["goal"] else "no"


def rows(measured: Measured, labels: Iterable[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """(what, measured, goal) of those figures that there are, by (what, name)."""
    return [
        (label, shown(figure), "" if figure["goal"] is None else f"≤ {figure['goal']:g} {figure['unit']}".strip())
        for label, name in labels
        if (figure := measured.get(name)) is not None
    ]


def _goals(measured: Measured) -> Section:
    found = [
        (name, shown(figure), f"≤ {figure['goal']:g} {figure['unit']}", met(figure), figure["what"])
        for name, figure in measured.items()
        if figure["goal"] is not None
    ]
    missed = [name for name, *_, good, _ in found if good != "yes"]
    says = (
        f"Missed in this run: {', '.join(f'`{name}`' for name in missed)}."
        if missed
        else "Every goal was met in this run."
    )
    return Section("Goals", [says], [Table(("figure", "measured", "goal", "met", "how"), found)])


def _added(measured: Measured) -> Section:
    labels = [
        ("CPU of a bare grpc.aio echo", "echo_cpu_us"),
        ("CPU of a unary Answer, embedding, database and model left out", "answer_cpu_us"),
        ("that over the echo", "added_cpu_ratio"),
        ("with every call traced", "traced_cpu_us"),
        ("that over the echo", "traced_cpu_ratio"),
        ("latency added to the echo's p50, 1 connection", "added_latency_p50_ms"),
        ("HTTP façades, added to gRPC's p50", "http_added_p50_ms"),
        ("start to SERVING, database up", "start_seconds"),
        ("resident memory after questions", "resident_mb"),
    ]
    return Section(
        "What the gateway adds",
        [
            (
                "Echo and gateway take turns, so that both see the same machine; the best of the rounds counts."
                " Whatever embeds, searches, journals or writes answers at once here; everything else is real."
            )
        ],
        [Table(("what", "measured", "goal"), rows(measured, labels))],
    )


def _streams(measured: Measured) -> Section:
    labels = [
        (f"{what}, {streams} at once, {rank}", f"stream_{streams}_{name}_{rank}_ms")
        for name, what in (
            ("forward", "a word, from the model's server to the client"),
            ("release", "the same from what ends the word"),
            ("first_event", "first event"),
            ("first_token", "first word"),
        )
        for streams in (1, 16)
        for rank in ("p50", "p99")
    ]
    labels += [("events, 4 clients, a model that does not wait", "stream_events_per_second")]
    labels += [
        (f"{what}, {rank}", f"cancel_{name}_{rank}_ms")
        for name, what in (("llm", "cancelled: the model's connection closed"), ("sql", "cancelled: statement gone"))
        for rank in ("p50", "p99")
    ]
    return Section(
        "Streams and cancellation",
        [
            (
                "Words say when the model's server sent them; all processes read one clock. The output guard shows"
                " whole words alone, since the beginning of a word may become an address: a word is shown when the"
                " next one comes (here 15 ms later), and what the gateway itself takes is counted from there."
            )
        ],
        [Table(("what", "measured", "goal"), rows(measured, labels))],
    )


def _throughput(measured: Measured, connections: Sequence[int]) -> Section:
    def series(rest: str) -> list[float]:
        return [measured[f"standard_{count}_{rest}"]["value"] for count in connections]

    calls, p50, p99 = series("calls_per_second"), series("p50_ms"), series("p99_ms")
    table = [
        (str(count), *(f"{value:,.1f}" for value in found))
        for count, *found in zip(connections, calls, p50, p99, strict=True)
    ]
    x = [float(count) for count in connections]
    charts = [
        LineChart(
            "throughput",
            "Standard route without a model: calls a second",
            "connections",
            "calls a second",
            [Line("calls a second", x, calls, marked=True)],
            None,
            (0.0, max(calls) * 1.15),
        ),
        LineChart(
            "latency",
            "Standard route without a model: latency",
            "connections",
            "milliseconds",
            [Line("p50", x, p50, marked=True), Line("p99", x, p99, marked=True)],
            None,
            None,
        ),
    ]
    return Section(
        "Throughput of one process",
        [
            (
                "Unary answers without a language model (sentences of the passages), embedding, search and journal"
                " included, each connection with one call in flight."
            )
        ],
        [Table(("connections", "calls/s", "p50 ms", "p99 ms"), table)],
        charts,
    )


def _searches(measured: Measured, sizes: Sequence[int]) -> Section:
    labels = [
        ("embed a question, p50", "embed_p50_ms"),
        ("embed a question, p99", "embed_p99_ms"),
        ("classify over gRPC, p50", "classify_p50_ms"),
        ("classify over gRPC, p99", "classify_p99_ms"),
    ]
    for size in sizes:
        labels += [
            (f"search {size:,} passages, p50", f"retrieve_{size}_p50_ms"),
            (f"search {size:,} passages, p99", f"retrieve_{size}_p99_ms"),
            ("its bare SQL, p50", f"statements_{size}_p50_ms"),
            ("search over bare SQL", f"retrieve_{size}_over_sql"),
        ]
    return Section("Embedding and search", tables=[Table(("what", "measured", "goal"), rows(measured, labels))])


def _proxies(measured: Measured) -> Section:
    columns = {
        "p50": "p50_ms",
        "added p50": "added_p50_ms",
        "p99": "p99_ms",
        "CPU a call": "cpu_us",
        "word forwarded, p50": "forward_p50_ms",
        "from what ends it, p50": "release_p50_ms",
        "from what ends it, p99": "release_p99_ms",
        "first word, p50": "first_token_p50_ms",
    }
    there = {name: label for name, label in _PROXIES.items() if f"chat_{name}_p50_ms" in measured}
    table = [
        (label, *(_cell(measured.get(f"chat_{name}_{suffix}")) for suffix in columns.values()))
        for name, label in there.items()
    ]
    proxies = {name: label for name, label in there.items() if name != "direct"}
    charts = [
        BarChart(
            f"proxies_{name}",
            title,
            unit,
            list(proxies.values()),
            [Bars(title, [measured[f"chat_{proxy}_{suffix}"]["value"] for proxy in proxies])],
            None,
        )
        for name, title, unit, suffix in (
            ("cpu", "CPU a chat completion", "microseconds", "cpu_us"),
            ("release", "From what ends a word to the client, p99", "milliseconds", "release_p99_ms"),
        )
    ]
    more = rows(
        measured,
        [
            ("CPU a call, passages at hand, over LiteLLM's", "chat_cpu_over_litellm"),
            ("resident memory of LiteLLM's proxy", "chat_litellm_resident_mb"),
        ],
    )
    return Section(
        "Beside LiteLLM's proxy",
        [
            (
                "The same chat completion from the same client to the same model's server, one connection, keys"
                " asked for. *Passages at hand* does what a proxy does, and decides, renders the prompt, guards and"
                " cites besides; *the whole* embeds, searches and journals as well, which a proxy does not. LiteLLM"
                " runs on uvicorn with uvloop and httptools, without a database, limits, metrics or traces, its logs"
                " at ERROR; ours has all of them on."
            )
        ],
        [Table(("through", *columns), table), *([Table(("what", "measured", "goal"), more)] if more else [])],
        charts,
    )


def _cell(figure: Mapping[str, Any] | None) -> str | None:
    return None if figure is None else shown(figure)


def _decisions(measured: Measured) -> Section:
    columns = {"p50": "p50_us", "p99": "p99_us", "AUC": "auc", "accuracy": "accuracy"}
    table = [
        (label, *(_cell(measured.get(f"decision_{name}_{suffix}")) for suffix in columns.values()))
        for name, label in (("pointsman", "pointsman, text model"), ("semantic_router", "semantic-router"))
        if f"decision_{name}_auc" in measured
    ]
    return Section(
        "The decision, beside semantic-router",
        [
            (
                "Simple or complex, on our own labelled questions, with whole domains held out; the question's"
                " vector is at hand. semantic-router decides by the nearest utterances of two routes, which are all"
                " questions of the other domains, in MiniLM's vectors. Ours has an encoder of its own, tuned on the"
                " other domains, and features of the wording: the table compares what each brings, not two ways of"
                " reading one vector. Routes have semantic-router's own defaults (the mean of the five nearest). The"
                " gateway decides with the first retrieval besides, which this leaves out."
            )
        ],
        [Table(("by", *columns), table)],
    )


def _ingest(measured: Measured) -> Section:
    labels = [
        ("documents a second", "ingest_documents_per_second"),
        ("chunks a second", "ingest_chunks_per_second"),
        ("part of the time in which the embedder was at work", "ingest_embedder_share"),
        *((f"{stage} a chunk", f"ingest_{stage}_ms") for stage in _STAGES),
    ]
    chart = BarChart(
        "ingest",
        "Ingest: time a chunk, each step by itself",
        "milliseconds",
        list(_STAGES),
        [Bars("milliseconds", [measured[f"ingest_{stage}_ms"]["value"] for stage in _STAGES])],
        None,
    )
    return Section(
        "Ingest",
        [f"{measured['ingest_chunks_per_second']['what']}; in the whole the steps overlap."],
        [Table(("what", "measured", "goal"), rows(measured, labels))],
        [chart],
    )


def _costs(measured: Measured) -> Section:
    there = {name: label for name, label in _ROUTES.items() if f"cost_{name}_cpu_ms" in measured}
    table = [
        (
            label,
            *(
                _cell(measured.get(f"cost_{name}_{suffix}"))
                for suffix in ("cpu_ms", "database_cpu_ms", "calls_per_core_hour")
            ),
        )
        for name, label in there.items()
    ]

    def series(suffix: str) -> list[float | None]:
        return [(measured.get(f"cost_{name}_{suffix}") or {}).get("value") for name in there]

    chart = BarChart(
        "costs",
        "CPU a call",
        "milliseconds",
        list(there.values()),
        [Bars("gateway", series("cpu_ms")), Bars("database", series("database_cpu_ms"))],
        None,
    )
    return Section(
        "CPU a call, by route",
        [
            (
                "What sizing (docs/operations.md) is computed from. Calls of a core an hour are the gateway's"
                " own; the database has cores besides."
            )
        ],
        [Table(("route", "gateway", "database", "calls a core-hour"), table)],
        [chart],
    )


def _everything(measured: Measured) -> Section:
    table = [(name, shown(figure), figure["what"]) for name, figure in measured.items()]
    return Section("Every figure, and how it was measured", tables=[Table(("figure", "measured", "how"), table)])
