"""The parts of the benchmark: stamps on words, HTTP by hand, processes and what they cost, pages out of results."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.bench.added import Turn
from router.bench.figure import Figure, Goals, percentiles
from router.bench.http_load import CHAT, chat_body
from router.bench.processes import cpu_seconds, load_process, name_of, output_of, parent_of, resident_bytes
from router.bench.publish import RESULTS, ROOT, page, pages, readme
from router.bench.report import bench_report, shown
from router.bench.run import require_peers
from router.bench.standin import MODEL, STAMP, open_standin, stamped
from router.bench.stream_load import Reading, Watched
from router.bench.wire import Connection
from router.evaluation.report import markdown
from standard.domain.errors import FailedPrecondition, InvalidInput


@given(st.floats(0.0, 9e8))
def test_a_word_says_when_it_was_sent(now: float) -> None:
    found = STAMP.fullmatch(stamped(now).strip())
    assert found is not None
    assert int(found[1]) / 1e6 == pytest.approx(now, abs=2e-6)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=8), st.data())
def test_words_count_once_however_the_events_cut_them(sent: list[int], data: st.DataObject) -> None:
    text = "".join(f" w{at:015d}" for at in sorted(sent)) + " and more"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    watched = Watched()
    reading = Reading(watched)
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        reading.event(text[start:end])
    reading.end()
    assert len(watched.forwarded) == len(sent)
    assert len(watched.first_event) == len(watched.first_token) == 1
    assert watched.events == len(cuts) + 1


def test_what_let_a_word_go_is_the_last_one_sent_before_it_came() -> None:
    watched = Watched()
    reading = Reading(watched)
    now = time.monotonic()
    earlier, later = stamped(now - 0.5), stamped(now - 0.001)
    reading.event(earlier + later)
    reading.end()
    assert watched.forwarded[0] > 0.49
    assert all(0 < released < 0.2 for released in watched.released)


async def test_the_stand_in_streams_at_its_pace_and_notes_who_leaves() -> None:
    async with open_standin() as standin:
        await standin.pace(5, 0.02)
        async with Connection(standin.port) as connection:
            request = connection.request(CHAT, chat_body(MODEL, "Where?", "", stream=True))
            began = time.monotonic()
            chunks = [chunk async for chunk in connection.events(request)]
            assert time.monotonic() - began >= 0.08
            words = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk.get("choices"))
            assert len(STAMP.findall(words)) == 5
            whole = json.loads(await connection.whole(connection.request(CHAT, chat_body(MODEL, "Where?", ""))))
            assert len(STAMP.findall(whole["choices"][0]["message"]["content"])) == 5
        assert await standin.left() == []
        await standin.pace(1000, 0.01)
        async with Connection(standin.port) as connection:
            events = connection.events(connection.request(CHAT, chat_body(MODEL, "Where?", "", stream=True)))
            await anext(events)
            await events.aclose()  # type: ignore[attr-defined]
        at = time.monotonic()
        left: list[float] = []
        async with asyncio.timeout(5):
            while not left:
                left = await standin.left()
        assert abs(left[0] - at) < 1


async def test_a_reply_that_is_no_success_is_told() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server, Connection(server.sockets[0].getsockname()[1]) as connection:
        with pytest.raises(FailedPrecondition, match="401 Unauthorized"):
            await connection.whole(connection.request("/", None))


@pytest.mark.skipif(not Path("/proc").exists(), reason="CPU of other processes is read from /proc")
async def test_what_a_process_and_its_children_use_is_counted() -> None:
    before = cpu_seconds(os.getpid())
    await output_of(sys.executable, "-c", "import time\nwhile time.process_time() < 0.4: pass", seconds=30)
    after = cpu_seconds(os.getpid())
    assert before is not None
    assert after is not None
    assert after - before >= 0.35
    assert name_of(os.getpid()).startswith(("python", "pytest"))
    assert parent_of(os.getpid()) == os.getppid()
    assert cpu_seconds(2**22 + 1) is None
    assert await resident_bytes(os.getpid()) > 1_000_000


async def test_a_load_generator_that_fails_is_named() -> None:
    with pytest.raises(FailedPrecondition, match=r"router\.bench\.load 127\.0\.0\.1:1 echo"):
        await load_process("router.bench.load", "127.0.0.1:1", "echo", "", "none", seconds=0.1)


async def test_a_process_that_does_not_end_is_ended() -> None:
    began = time.monotonic()
    with pytest.raises(FailedPrecondition, match="does not end"):
        await output_of(sys.executable, "-c", "import time; time.sleep(60)", seconds=0.3)
    assert time.monotonic() - began < 20


async def test_a_python_without_the_peers_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has not litellm and semantic_router; `make bench-peers` makes one"):
        await require_peers(Path(sys.executable))
    with pytest.raises(FileNotFoundError):
        await require_peers(tmp_path / "python")


def test_cpu_is_compared_within_each_round() -> None:
    ours, theirs = Turn(1.0, 0.1, (1.0, 6.0, 4.0)), Turn(0.5, 0.1, (0.5, 2.0, 1.0))
    assert ours.over(theirs) == 3.0


def test_percentiles_carry_their_goals() -> None:
    found = percentiles("cancel", [0.001, 0.002, 0.003], "a call", Goals(5.0, 10.0))
    assert found == {
        "cancel_p50_ms": Figure(2.0, "ms", "a call", 5.0),
        "cancel_p99_ms": Figure(3.0, "ms", "a call", 10.0),
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.5, "1,234 ms"), (12.34, "12.3 ms"), (1.234, "1.23 ms"), (0.12345, "0.123 ms"), (-0.5, "-0.500 ms")],
)
def test_figures_are_shown_with_the_digits_that_count(value: float, text: str) -> None:
    assert shown({"value": value, "unit": "ms"}) == text


def results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / RESULTS).read_text())
    return found


def test_the_published_pages_are_what_the_results_make_of_them() -> None:
    for path, text in pages(ROOT).items():
        assert path.read_text() == text, f"{path.name}: run `make bench-page`"


def test_the_page_names_every_goal_that_was_missed() -> None:
    found = results()
    found["figures"]["added_cpu_ratio"]["value"] = 9.0
    written = markdown(bench_report(found))
    assert "`added_cpu_ratio`" in written.split("Missed in this run: ")[1].split("\n")[0]
    for figure in found["figures"].values():
        figure["value"] = min(figure["value"], figure["goal"] or figure["value"])
    assert "Every goal was met in this run." in markdown(bench_report(found))


def test_charts_of_the_page_lie_where_the_run_left_them() -> None:
    charts = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page(results()))
    assert charts
    for chart in charts:
        assert (ROOT / "docs" / chart).is_file()


def test_a_page_without_peers_says_so_and_leaves_them_out() -> None:
    found = results()
    found["plan"]["peers"] = False
    found["figures"] = {
        name: figure for name, figure in found["figures"].items() if not re.search("litellm|semantic_router", name)
    }
    written = markdown(bench_report(found))
    assert "were left out of this run" in written
    assert "LiteLLM's proxy |" not in written


def test_a_readme_without_a_place_for_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="has no"):
        readme("# Something\n", results())
