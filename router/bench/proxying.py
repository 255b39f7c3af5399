"""A chat completion through the gateway's OpenAI façade, and through LiteLLM's proxy, to the same model server.

Same request, same client, keys asked for by both, in turns with the model's server called without anybody between.
`hollow` does for a call what a proxy does (keys, limits, metrics, traces, the prompt, the model's stream) with passages
at hand; `pointsman` is the whole: it embeds, searches, decides, answers, cites and journals as well.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from router.answering import standard_handler
from router.bench.callers import NOBODY, Caller
from router.bench.figure import Figure, Figures, Report
from router.bench.hollow import open_hollow, open_hollow_http
from router.bench.http_load import OURS, run_http_load
from router.bench.processes import cpu_seconds, resident_bytes, telling_process
from router.bench.standin import MODEL
from router.bench.stream_load import run_stream_load
from router.configs import llm_config
from router.telemetry.llm import LlmMetrics
from router.telemetry.metrics import Metrics
from standard.domain.errors import FailedPrecondition
from standard.llm.client import OpenAiLlm
from standard.sandbox.canary import draw_canary
from standard.sandbox.guarded_llm import GuardedLlm

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from numpy.typing import NDArray

    from router.application import Application
    from router.bench.standin import Standin
    from router.parts import RouteHandler

_START_SECONDS: Final = 120.0
_WORDS: Final = 12
_APART: Final = 0.015
_KEY: Final = "sk-bench"
_SCRIPT: Final = Path(__file__).with_name("litellm_peer.py")


@dataclass(frozen=True, slots=True)
class _Proxy:
    """A server of chat completions: where, which model, who calls; `pid` is None where it is this process."""

    port: int
    model: str
    caller: Caller
    who: str
    pid: int | None = None
    collection: str = ""

    def cpu(self) -> float:
        """CPU seconds that it has used so far."""
        return time.process_time() if self.pid is None else cpu_seconds(self.pid) or 0.0


@dataclass(frozen=True, slots=True)
class Whole:
    """The whole gateway over HTTP, for `proxy_figures`: its port, who calls it, and a collection."""

    port: int
    caller: Caller
    collection: str


async def proxy_figures(
    application: Application,
    whole: Whole,
    standin: Standin,
    peers: Path | None,
    words: int,
    seconds: float,
    rounds: int,
    report: Report,
) -> Figures:
    """Measure each in turns: unary calls, then streams of `words` words. Without `peers` LiteLLM is left out."""
    async with AsyncExitStack() as stack:
        proxies = {
            "hollow": await stack.enter_async_context(_hollow(application)),
            "pointsman": _Proxy(
                whole.port,
                OURS,
                whole.caller,
                f"the whole gateway: {whole.collection} searched, journaled",
                collection=whole.collection,
            ),
        }
        if peers is not None:
            report("LiteLLM's proxy starts")
            proxies["litellm"] = await stack.enter_async_context(_litellm(peers, standin))
        report("chat completions through proxies, in turns")
        await standin.pace(_WORDS, 0.0)
        unary = await _unary(standin, proxies, rounds, seconds)
        report("streamed chat completions through proxies, in turns")
        await standin.pace(words, _APART)
        streams = await _streams(standin, proxies, seconds)
        if (litellm := proxies.get("litellm")) is not None and litellm.pid is not None:
            resident = await resident_bytes(litellm.pid)
            unary["chat_litellm_resident_mb"] = Figure(
                resident / 1e6, "MB", f"resident memory of {litellm.who} after these calls"
            )
    return unary | streams


@dataclass(frozen=True, slots=True)
class _Turn:
    cpu: float
    p50: float
    p99: float


async def _unary(standin: Standin, proxies: Mapping[str, _Proxy], rounds: int, seconds: float) -> Figures:
    turns: dict[str, list[_Turn]] = {name: [] for name in proxies}
    direct: list[float] = []
    for _ in range(rounds):
        found = await run_http_load(standin.port, "chat", seconds / rounds, model=MODEL)
        direct.append(found["p50"])
        for name, proxy in proxies.items():
            before = proxy.cpu()
            found = await run_http_load(
                proxy.port,
                "chat",
                seconds / rounds,
                model=proxy.model,
                collection=proxy.collection,
                caller=proxy.caller,
            )
            calls = found["calls"] + 1  # the first warms up and is not counted there
            turns[name].append(_Turn((proxy.cpu() - before) / calls, found["p50"], found["p99"]))
    bare = min(direct)
    figures: Figures = {
        "chat_direct_p50_ms": Figure(bare * 1e3, "ms", "the model's server itself, 1 connection, best of the rounds")
    }
    for name, rounds_ in turns.items():
        who = proxies[name].who
        p50 = min(turn.p50 for turn in rounds_)
        figures |= {
            f"chat_{name}_p50_ms": Figure(p50 * 1e3, "ms", f"unary, 1 connection: {who}"),
            f"chat_{name}_p99_ms": Figure(min(turn.p99 for turn in rounds_) * 1e3, "ms", f"the same: {who}"),
            f"chat_{name}_added_p50_ms": Figure((p50 - bare) * 1e3, "ms", f"beyond the model's server: {who}"),
            f"chat_{name}_cpu_us": Figure(min(turn.cpu for turn in rounds_) * 1e6, "us", f"CPU a call: {who}"),
        }
    if "litellm" in turns:
        ours, theirs = (figures[f"chat_{name}_cpu_us"].value for name in ("hollow", "litellm"))
        figures["chat_cpu_over_litellm"] = Figure(
            ours / theirs, "x", "chat_hollow_cpu_us over chat_litellm_cpu_us, measured in turns", 1.0
        )
    return figures


async def _streams(standin: Standin, proxies: Mapping[str, _Proxy], seconds: float) -> Figures:
    figures: Figures = {}
    direct = _Proxy(standin.port, MODEL, NOBODY, "the model's server itself")
    for name, proxy in {"direct": direct, **proxies}.items():
        found = await run_stream_load(
            str(proxy.port),
            "chat",
            1,
            seconds,
            model=proxy.model,
            collection=proxy.collection,
            caller=proxy.caller,
        )
        for key, figure, what in (
            ("forwarded", "forward", "from the model's server sending a word to the client having it"),
            ("released", "release", "from the model's server sending what ends a word to the client having it"),
            ("first_token", "first_token", "from the call to the first word at the client"),
        ):
            for rank in ("p50", "p99"):
                figures[f"chat_{name}_{figure}_{rank}_ms"] = Figure(
                    found[f"{key}_{rank}"] * 1e3, "ms", f"{what}: {proxy.who}"
                )
    return figures


@asynccontextmanager
async def _hollow(application: Application) -> AsyncIterator[_Proxy]:
    """The hollow gateway with our standard route and a client of the stand-in."""
    settings = application.settings
    config = llm_config(settings)
    if config is None:
        raise FailedPrecondition("the application has no language model")
    models, dimensions = application.models.current(), application.embedder.dimensions

    async def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.full((len(texts), dimensions), dimensions**-0.5, dtype=np.float32)

    async with AsyncExitStack() as stack:
        llm = await stack.enter_async_context(OpenAiLlm(config, LlmMetrics(Metrics())))

        def standard(metrics: Metrics) -> RouteHandler:
            return standard_handler(GuardedLlm(llm, draw_canary()), embed, settings, metrics)

        hollow = await stack.enter_async_context(open_hollow(settings, models, dimensions, standard=standard))
        port = await stack.enter_async_context(open_hollow_http(hollow))
        yield _Proxy(port, OURS, hollow.caller, "the gateway with passages at hand, not journaled")


@asynccontextmanager
async def _litellm(peers: Path, standin: Standin) -> AsyncIterator[_Proxy]:
    """LiteLLM's proxy: one model, a master key, no database, nothing fetched and nothing told to anybody."""
    config = {
        "model_list": [
            {
                "model_name": MODEL,
                "litellm_params": {"model": f"openai/{MODEL}", "api_base": standin.url, "api_key": "none"},
            }
        ],
        "general_settings": {"master_key": _KEY},
        "litellm_settings": {"telemetry": False},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(json.dumps(config))  # JSON is YAML
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("POINTSMAN_", "LITELLM_"))},
            "CONFIG_FILE_PATH": str(path),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_TELEMETRY": "False",
            "LITELLM_LOG": "ERROR",
            "HF_HUB_OFFLINE": "1",
        }
        command = (str(peers), str(_SCRIPT))
        async with telling_process(*command, seconds=_START_SECONDS, environment=environment) as (pid, told):
            who = f"LiteLLM's proxy {told['version']}"
            yield _Proxy(int(told["port"]), MODEL, Caller(_KEY), who, pid)
