"""`pointsman serve`: a gateway until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated, Any

import structlog
import typer
import uvloop

from router.cli.output import diagnostics
from router.settings import Settings, load_settings
from standard.tasks import task_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.process.serverlock import RunningServer
    from router.process.supervisor import Group

_log = structlog.get_logger("pointsman.serve")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="gRPC port; 0 takes a free one.")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Prometheus port; 0 takes a free one.")] = None,
    http_port: Annotated[int | None, typer.Option(help="HTTP port; 0 takes a free one.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes behind the ports; SIGHUP rolls them.")] = None,
) -> int:
    """Serve until SIGTERM or Ctrl-C, then finish calls in flight and stop."""
    given = {"host": host, "port": port, "metrics_port": metrics_port, "workers": workers}
    server = {key: value for key, value in given.items() if value is not None}
    http = {} if http_port is None else {"port": http_port}
    given_sections = {"server": server, "http": http}
    overrides = {name: section for name, section in given_sections.items() if section}
    settings = load_settings(**overrides)
    serving = serve_until_stopped(settings) if settings.server.workers == 1 else supervise(settings, overrides)
    try:
        uvloop.run(serving)
    except asyncio.CancelledError:
        return 130  # a second signal
    return 0


async def serve_until_stopped(settings: Settings) -> None:
    """Serve, print how to call it, and stop on SIGTERM or SIGINT; a second signal stops at once."""
    from router.process.serving import open_server_process
    from router.telemetry.logs import configure_logs

    configure_logs(settings)
    stop = _stopped_by_signals()
    async with open_server_process(settings) as server:
        _print_how_to_call(server, settings)
        await stop.wait()
        _say_stopping(settings)


async def supervise(settings: Settings, overrides: Mapping[str, Any]) -> None:
    """The same with several workers; SIGHUP replaces them one after another, with the settings as they are by then."""
    from router.process.supervisor import open_group
    from router.telemetry.logs import configure_logs

    configure_logs(settings)
    stop, roll = _stopped_by_signals(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, roll.set)

    async def roll_when_asked(group: Group) -> None:
        while True:
            await roll.wait()
            roll.clear()
            await group.roll()

    async with open_group(settings, overrides) as group:
        _print_how_to_call(group.server, settings)
        async with task_group() as tasks:
            followers = [tasks.create_task(group.keep()), tasks.create_task(roll_when_asked(group))]
            await stop.wait()
            for follower in followers:
                follower.cancel()
        _say_stopping(settings)


def _stopped_by_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set; a second one cancels the task that asked for it."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    serving = asyncio.current_task()

    def on_signal() -> None:
        if stop.is_set() and serving is not None:
            serving.cancel("a second signal")
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop


def _say_stopping(settings: Settings) -> None:
    message = "stopping: calls in flight finish first"
    if settings.log.format == "json":
        _log.info(message)
    else:
        diagnostics().print(f"{message} ...")


def _print_how_to_call(server: RunningServer, settings: Settings) -> None:
    if settings.log.format == "json":
        return  # whoever reads this stream reads records, and one of them says where it serves
    console = diagnostics()
    if settings.auth.mode == "keys":
        console.print("Every call needs an API key: `pointsman keys create --tenant NAME` makes one")
    console.print(
        f"[bold]pointsman serves gRPC on {server.target}[/bold], metrics on"
        f" http://{settings.server.metrics_host}:{server.metrics_port}/metrics"
    )
    console.print(f'  pointsman ask --server {server.target} "Who signs for the spare pump?"')
    if server.http_url is not None:
        console.print(
            f"[bold]and HTTP on {server.http_url}[/bold]: OpenAI clients use {server.http_url}/v1 as base URL"
        )
        if settings.http.console:
            console.print(f"  {server.http_url}/ in a browser is the console: ask, watch, recent runs, routing, corpus")
    body = '{"question": "..."}'
    key = ' -H "authorization: Bearer KEY"' if settings.auth.mode == "keys" else ""
    console.print(f"  grpcurl -plaintext{key} -d '{body}' {server.target} pointsman.v1.GatewayService/Answer")
    console.print(f'  Python: async with pointsman.client.Pointsman("{server.target}") as p: await p.answer("...")')
    console.print("Ctrl-C stops it.")
