"""`pointsman rollout`: change it, look at it, report what it brought, and simulate it before it is switched on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pointsman.v1 import admin_pb2
from rich.markup import escape
from rich.table import Table

from router.cli.connect import connected
from router.cli.evaluate import Out, prepared, written
from router.cli.inputs import BadLine, json_lines, opened, sendable_text_of
from router.cli.label import Collection, Since, Tenant, moment
from router.cli.options import Json, Key, Server
from router.cli.output import diagnostics, print_json, progress_bar, results
from router.grpc.jsonform import to_json
from router.settings import load_settings
from standard.domain.errors import InvalidInput, PointsmanError

if TYPE_CHECKING:
    import datetime as dt

    from router.rollout.simulate import Takes
    from router.routing.policy import PolicyChange
    from router.settings import Settings
    from standard.domain.question import Route

Whose = Annotated[str, typer.Option("--tenant", help="Whose policy; default: that of all tenants.")]
_MODES = {
    "off": admin_pb2.ROLLOUT_MODE_OFF,
    "shadow": admin_pb2.ROLLOUT_MODE_SHADOW,
    "canary": admin_pb2.ROLLOUT_MODE_CANARY,
    "enforce": admin_pb2.ROLLOUT_MODE_ENFORCE,
}
_CANARIES = {"session": admin_pb2.CANARY_BY_SESSION, "tenant": admin_pb2.CANARY_BY_TENANT}
_SHOWN_REFUSALS = 100


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="Roll the agentic route out: off, shadow, canary, enforce.", no_args_is_help=True)
    group.command("show")(show)
    group.command("set")(set_)
    group.command("history")(history)
    group.command("report")(report)
    group.command("simulate")(simulate)
    app.add_typer(group, name="rollout")


def show(tenant: Whose = "", server: Server = None, key: Key = "", json_output: Json = False) -> int:
    """Show a policy and its rollout."""

    async def run() -> dict[str, Any]:
        async with connected(load_settings(), server, key) as client:
            request = admin_pb2.GetRoutingPolicyRequest(tenant=tenant)
            answer = await client.admin.GetRoutingPolicy(request, timeout=30.0, metadata=client.metadata)
        return {"tenant": tenant, **to_json(answer)}

    _show_policy(asyncio.run(run()), json_output=json_output)
    return 0


def set_(
    mode: Annotated[str, typer.Argument(help="off, shadow, canary or enforce; empty = as it is.")] = "",
    tenant: Whose = "",
    percent: Annotated[float | None, typer.Option(help="Percentage that may, under canary: 0 to 100.")] = None,
    by: Annotated[str, typer.Option(help="What that is of: session or tenant.")] = "",
    sample: Annotated[float | None, typer.Option(help="Share answered aside, under shadow: 0 to 1.")] = None,
    kill: Annotated[
        bool | None, typer.Option("--kill/--no-kill", help="The switch that stops the agentic route at once.")
    ] = None,
    server: Server = None,
    key: Key = "",
    json_output: Json = False,
) -> int:
    """Change the rollout for all tenants, or for one; every replica follows within seconds."""
    if mode and mode not in _MODES:
        raise InvalidInput("mode", f"{mode[:40]!r} is none of {', '.join(_MODES)}")
    if by and by not in _CANARIES:
        raise InvalidInput("by", f"{by[:40]!r} is none of {', '.join(_CANARIES)}")
    if not mode and not by and percent is None and sample is None and kill is None:
        raise typer.BadParameter("say what to change: a MODE, --percent, --by, --sample, --kill or --no-kill")

    async def run() -> dict[str, Any]:
        async with connected(load_settings(), server, key) as client:
            request = admin_pb2.GetRoutingPolicyRequest(tenant=tenant)
            before = await client.admin.GetRoutingPolicy(request, timeout=30.0, metadata=client.metadata)
            policy = before.policy
            if mode:
                policy.rollout = _MODES[mode]
            if by:
                policy.canary_by = _CANARIES[by]
            if percent is not None:
                policy.canary_percent = percent
            if sample is not None:
                policy.shadow_sample = sample
            if kill is not None:
                policy.kill_switch = kill
            # A change that came between is not undone; 0, for a policy that nobody has changed yet, takes any.
            change = admin_pb2.UpdateRoutingPolicyRequest(tenant=tenant, policy=policy, expected_version=before.version)
            after = await client.admin.UpdateRoutingPolicy(change, timeout=30.0, metadata=client.metadata)
        return {"tenant": tenant, **to_json(after)}

    _show_policy(asyncio.run(run()), json_output=json_output)
    return 0


def _show_policy(view: dict[str, Any], *, json_output: bool) -> None:
    if json_output:
        print_json(view)
        return
    policy = view["policy"]
    whose = view["tenant"] or "all tenants"
    console = results()
    console.print(f"[bold]{escape(whose)}[/bold]: rollout {policy['rollout']}, version {view['version']}")
    console.print(
        f"  canary {policy['canary_percent']:g}% by {policy['canary_by']}, shadow {policy['shadow_sample']:g}"
    )
    if policy["kill_switch"]:
        console.print("  [red]the kill switch is on: nothing takes the agentic route[/red]")


def history(
    tenant: Annotated[str | None, typer.Option("--tenant", help='Only this one; "" is the policy of all.')] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, newest first.")] = 50,
    json_output: Json = False,
) -> int:
    """Who changed policies, when, and what; read from the database itself."""

    async def run() -> list[PolicyChange]:
        from router.cli.keys import database
        from router.decide import Policy
        from router.routing.policy import PolicyStore

        async with database(load_settings()) as pool:
            return await PolicyStore(pool, Policy()).changes(tenant, limit=limit)

    changes = asyncio.run(run())
    if json_output:
        for each in changes:
            print_json(asdict(each) | {"changed_at": each.changed_at.isoformat()})
        return 0
    table = Table("when", "whose", "version", "by", "changed")
    for each in changes:
        before = each.before or {}
        changed = {name: value for name, value in each.after.items() if before.get(name) != value}
        cells = (each.tenant or "all", str(each.version), each.changed_by, json.dumps(changed))
        table.add_row(each.changed_at.isoformat(timespec="seconds"), *(escape(cell) for cell in cells))
    results().print(table)
    return 0


def report(
    since: Since = "", tenant: Tenant = "", collection: Collection = "", out: Out = None, json_output: Json = False
) -> int:
    """Agreement, lift, cost and latency by probability, from the journal."""
    folder = prepared(out)
    settings, start = load_settings(), moment(since)

    async def run() -> dict[str, Any]:
        from router.cli.keys import database
        from router.journal.codec import EventCodec
        from router.rollout.report import rollout_figures

        async with database(settings) as pool:
            figures = await rollout_figures(
                pool,
                EventCodec(),
                retention_days=settings.journal.retention_days,
                since=start,
                tenant=tenant,
                collection=collection,
            )
        return figures.view()

    narrowed = {"since": None if start is None else start.isoformat(), "tenant": tenant, "collection": collection}
    found = narrowed | asyncio.run(run())
    from router.evaluation.report import markdown
    from router.rollout.report import rollout_report

    if folder is not None:
        written(folder, rollout_report(found), found)
    print_json(found) if json_output else results().print(markdown(rollout_report(found)), markup=False)
    return 0


def simulate(
    queries: Annotated[Path, typer.Argument(metavar="QUERIES", help='JSONL of {"question"}; - reads standard input.')],
    collection: Annotated[
        str, typer.Option("--collection", help="Look into this one as well; default: text alone.")
    ] = "",
    tenant: Annotated[str, typer.Option("--tenant", help="Whose collection and policy.")] = "default",
    threshold: Annotated[float | None, typer.Option(help="Instead of the policy's, 0 to 1.")] = None,
    standard_seconds: Annotated[float | None, typer.Option(help="Instead of the journal's mean.")] = None,
    standard_usd: Annotated[float | None, typer.Option(help="Instead of the journal's mean.")] = None,
    agentic_seconds: Annotated[float | None, typer.Option(help="Instead of the journal's mean.")] = None,
    agentic_usd: Annotated[float | None, typer.Option(help="Instead of the journal's mean.")] = None,
    since: Since = "",
    out: Out = None,
    json_output: Json = False,
) -> int:
    """Share, cost and latency to expect for one's own questions; nothing is answered. Exit 1 for a bad line."""
    if threshold is not None and not 0.0 <= threshold <= 1.0:
        raise InvalidInput("threshold", f"{threshold} is not within 0 to 1")
    folder = prepared(out)
    given = {"standard": (standard_seconds, standard_usd), "agentic": (agentic_seconds, agentic_usd)}
    for name, values in given.items():
        for value in values:
            if value is not None and not 0.0 <= value <= 1e6:
                raise InvalidInput(name, f"{value} is not within 0 to 1000000")
    found = asyncio.run(_simulated(load_settings(), str(queries), collection, tenant, threshold, given, moment(since)))
    from router.evaluation.report import markdown
    from router.rollout.simulate import simulation_report

    if folder is not None:
        written(folder, simulation_report(found), found)
    if json_output:
        print_json(found)
    else:
        results().print(markdown(simulation_report(found)), markup=False)
        for each in found["refused"]:
            diagnostics().print(escape(f"{each['id']}: {each['error']}"))
    return 1 if found["refused_count"] else 0


async def _simulated(
    settings: Settings,
    file: str,
    collection: str,
    tenant: str,
    threshold: float | None,
    given: dict[str, tuple[float | None, float | None]],
    since: dt.datetime | None,
) -> dict[str, Any]:
    from dataclasses import replace

    from router.application import open_application
    from router.grpc.validate import collection_name, question_text
    from router.journal.codec import EventCodec
    from router.rollout.report import rollout_figures
    from router.rollout.simulate import Simulation, look_at, takes_of
    from standard.domain.passage import Scope
    from standard.domain.question import Question

    scope = Scope(tenant=tenant, collection=collection_name(collection) if collection else "")
    refused: list[dict[str, str]] = []
    refused_count = 0
    with opened(file) as handle:
        async with open_application(settings) as application:
            figures = await rollout_figures(
                application.pool, EventCodec(), retention_days=settings.journal.retention_days, since=since
            )
            policy = application.policies.policy(tenant)
            if threshold is not None:
                policy = replace(policy, threshold=threshold)
            simulation = Simulation(policy, _assumed(takes_of(figures.whole), given))
            models = application.models.require()
            with progress_bar() as bar:
                task = bar.add_task("reading questions", total=None, rate="")
                for row in json_lines(handle):
                    try:
                        if isinstance(row, BadLine):
                            raise InvalidInput("line", row.error)
                        text = question_text(sendable_text_of(row, "question"), "question", settings.limits)
                    except PointsmanError as error:
                        refused_count += 1
                        if len(refused) < _SHOWN_REFUSALS:
                            name = row.id if isinstance(row, BadLine) else row["id"]
                            refused.append({"id": name, "error": error.message})
                        continue
                    question = Question(text, scope)
                    simulation.take(*await look_at(question, models, application.embed, application.passages))
                    bar.update(task, completed=simulation.questions)
    if not simulation.questions and not refused_count:
        raise InvalidInput("QUERIES", f"{file}: holds no question")
    return (
        {"collection": collection or None, "tenant": tenant}
        | simulation.view()
        | {"refused_count": refused_count, "refused": refused}
    )


def _assumed(takes: dict[Route, Takes], given: dict[str, tuple[float | None, float | None]]) -> dict[Route, Takes]:
    """What answers take, with what the caller names in place of what was measured."""
    from dataclasses import replace

    assumed: dict[Route, Takes] = {}
    for route, each in takes.items():
        seconds, usd = given[route.value]
        named = seconds is not None or usd is not None
        assumed[route] = replace(
            each,
            seconds=each.seconds if seconds is None else seconds,
            usd=each.usd if usd is None else usd,
            source="option" if named else each.source,
        )
    return assumed
