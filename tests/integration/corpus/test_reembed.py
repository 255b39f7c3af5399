"""A change of embedder over a real PostgreSQL: the second embedder is a real HTTP endpoint with shorter vectors."""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from standard.corpus import collections
from standard.corpus.collections import EmbedderSpec, collection_at, delete_collection, set_scan_policy
from standard.corpus.document import SourceDocument
from standard.corpus.documents import delete_documents
from standard.corpus.ingest import ingest
from standard.corpus.reembed import worker
from standard.corpus.reembed.catchup import count_lacking
from standard.corpus.reembed.compare import Asked, compare, sampled
from standard.corpus.reembed.state import (
    changes_of,
    disk_needed,
    get_reembedding,
    reembedding_of,
    start_reembedding,
)
from standard.corpus.reembed.switch import cancel, finish, roll_back, switch
from standard.corpus.reembed.worker import Reembedder
from standard.corpus.rescan import count_verdicts
from standard.corpus.scan import ScanVerdict
from standard.corpus.write import put_documents
from standard.domain.errors import DatabaseUnavailable, EmbedderUnavailable, FailedPrecondition, InvalidInput, NotFound
from standard.domain.passage import Scope
from standard.retrieval.pin import pin_generations
from standard.retrieval.reader import CorpusReader
from tests.support.corpora import assert_consistent, collection_of, contents, fill, stream
from tests.support.hashing_embedder import HashingEmbedder
from tests.support.model_server.behaviour import Failure
from tests.support.two_embedders import DIMENSIONS, both, endpoint, no_scan, retriever, second_server
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from standard.corpus.collections import Collection
    from standard.corpus.embedders import Embedders
    from standard.corpus.reembed.state import Reembedding
    from standard.corpus.scan import Scan
    from standard.database.pool import Connection, Pool
    from standard.domain.passage import SearchResult
    from standard.embedding.protocol import Embedder

ROOT = Path(__file__).resolve().parents[3]


_PARTITIONS = (
    "select count(*) from pg_inherits where inhparent in ('chunk'::regclass, 'sentence'::regclass, 'posting'::regclass)"
)


def document(number: int, edition: int = 0) -> SourceDocument:
    """A document that one word finds: `subject7` stands in that of number 7 alone."""
    said = " ".join(f"The harbour log of day {day} speaks of subject{number} once more." for day in range(6))
    return SourceDocument(f"doc-{number:03}", f"Log {number}", f"{said} This is edition{edition}.")


def documents(count: int) -> list[SourceDocument]:
    return [document(number) for number in range(count)]


async def started(pool: Pool, embedders: Embedders, url: str) -> Reembedding:
    return await start_reembedding(pool, "default", "default", endpoint(url), embedders, by="tests")


async def made_ready(pool: Pool, embedders: Embedders, url: str) -> Reembedding:
    change = await started(pool, embedders, url)
    await Reembedder(pool, embedders, no_scan).bring_up_to_date(change.collection_id)
    change = await get_reembedding(pool, "default", "default")
    assert change.state == "ready"
    return change


async def switched(pool: Pool, embedders: Embedders) -> Reembedding:
    return await switch(pool, "default", "default", embedders, no_scan, by="tests")


async def rolled_back(pool: Pool, embedders: Embedders) -> Reembedding:
    return await roll_back(pool, "default", "default", embedders, no_scan, by="tests")


async def found(pool: Pool, embedders: Embedders, number: int) -> list[str]:
    """The documents that a search for a document's own subject finds."""
    text = f"subject{number}"
    vector = (await embedders.own.embed_queries([text]))[0]
    result = await retriever(pool, embedders).search(Scope(), text, vector, k=3)
    return [each.passage.document_id for each in result.passages]


async def partitions(pool: Pool) -> int:
    async with pool.connection() as conn:
        row = await (await conn.execute(_PARTITIONS)).fetchone()
    assert row is not None
    return int(row[0])


@asynccontextmanager
async def following(pool: Pool, embedders: Embedders, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A process that works at whatever changes are due, without long waits."""
    monkeypatch.setattr(worker, "LOOK_SECONDS", 0.02)
    task = asyncio.create_task(Reembedder(pool, embedders, no_scan).follow())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_collection_is_embedded_anew_while_the_old_vectors_answer_then_switched_and_finished(
    pool: Pool,
) -> None:
    await fill(pool, HashingEmbedder(), documents(20))
    before = await contents(pool)
    async with second_server() as server, both() as embedders:
        change = await made_ready(pool, embedders, server.base_url)
        assert (change.remaining, change.documents) == (0, 20)
        assert (change.former.embedder.id, change.new.embedder.id) == ("hashing", "openai:second")
        assert change.new.embedder.dimensions == DIMENSIONS
        assert await contents(pool) == before
        asked = len(server.others)
        assert (await found(pool, embedders, 7))[0] == "doc-007"
        assert len(server.others) == asked, "the old vectors are searched with the old embedder"
        change = await switched(pool, embedders)
        assert change.state == "switched"
        assert (await collection_of(pool)).embedder == change.new.embedder
        asked = len(server.others)
        assert (await found(pool, embedders, 7))[0] == "doc-007"
        assert len(server.others) > asked, "the new vectors are searched with the new embedder"
        await assert_consistent(pool)
        assert await partitions(pool) == 6
        await finish(pool, "default", "default", by="tests")
        assert await partitions(pool) == 3
        assert (await found(pool, embedders, 3))[0] == "doc-003"
        with pytest.raises(NotFound, match="is not being changed"):
            await get_reembedding(pool, "default", "default")
        done = [(each.action, each.to_embedder) for each in await changes_of(pool, "default", "default")]
        assert done == [("finish", "openai:second"), ("switch", "openai:second"), ("start", "openai:second")]


async def test_a_switch_is_rolled_back_and_made_again_without_losing_what_came_in_between(pool: Pool) -> None:
    own = HashingEmbedder()
    await fill(pool, own, documents(8))
    async with second_server() as server, both(own) as embedders:
        change = await made_ready(pool, embedders, server.base_url)
        await switched(pool, embedders)
        await taken_in(pool, embedders, [document(8), document(2, edition=1)])
        await delete_documents(pool, "default", "default", ["doc-000"])
        back = await rolled_back(pool, embedders)
        assert (back.state, back.remaining) == ("ready", 0)
        assert (await collection_of(pool)).embedder.id == "hashing"
        assert (await found(pool, embedders, 8))[0] == "doc-008"
        assert "doc-000" not in await found(pool, embedders, 0)
        again = await switched(pool, embedders)
        assert again.new.generation_id == change.new.generation_id
        assert "edition1" in str(await contents(pool))
        await assert_consistent(pool)
        for side in (again.new, again.former):
            assert await count_lacking(pool, again.collection_id, side.generation_id) == 0


async def taken_in(pool: Pool, embedders: Embedders, incoming: list[SourceDocument]) -> int:
    async def embedder_of(collection: Collection) -> Embedder:
        return await embedders.of(collection.embedder, collection.embedder_spec)

    report = await ingest(pool, "default", "default", stream(incoming), embedders.own, embedder_of=embedder_of)
    return report.added + report.replaced + report.unchanged


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_comes_in_or_goes_while_it_changes_nothing_acknowledged_is_lost_and_no_search_fails(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    await fill(pool, HashingEmbedder(), documents(30))
    there = dict.fromkeys(range(30), 0)
    settled = 25  # nobody touches what has a lower number
    searches = 0
    async with second_server() as server, both() as embedders, following(pool, embedders, monkeypatch):
        stop = asyncio.Event()

        async def write() -> None:
            number = 30
            while not stop.is_set():
                kind = chance.random()
                if kind < 0.5:
                    batch = [document(number + each) for each in range(chance.randint(1, 4))]
                    assert await taken_in(pool, embedders, batch) == len(batch)
                    there.update({number + each: 0 for each in range(len(batch))})
                    number += len(batch)
                elif kind < 0.8:
                    chosen, edition = chance.choice([each for each in there if each >= settled]), chance.randint(1, 99)
                    await taken_in(pool, embedders, [document(chosen, edition)])
                    there[chosen] = edition
                else:
                    chosen = chance.choice([each for each in there if each >= settled])
                    await delete_documents(pool, "default", "default", [f"doc-{chosen:03}"])
                    there.pop(chosen)
                    await taken_in(pool, embedders, [document(chosen)])
                    there[chosen] = 0
                await asyncio.sleep(0.01)

        async def search() -> None:
            nonlocal searches
            while not stop.is_set():
                number = chance.randrange(settled)
                assert (await found(pool, embedders, number))[0] == f"doc-{number:03}"
                searches += 1

        async with asyncio.TaskGroup() as group:
            for work in (write(), search(), search()):
                group.create_task(work)
            await started(pool, embedders, server.base_url)
            await eventually_in(pool, "ready")
            await asyncio.sleep(chance.random() / 4)
            await switched(pool, embedders)
            await asyncio.sleep(chance.random() / 2)
            await rolled_back(pool, embedders)
            await asyncio.sleep(chance.random() / 4)
            change = await switched(pool, embedders)
            await asyncio.sleep(0.2)
            stop.set()
        assert searches > 20
        held = {str(row[0]): str(row[2]) for row in await contents(pool)}
        assert {name: int(text.rsplit("edition")[1].rstrip(".")) for name, text in held.items()} == {
            f"doc-{number:03}": edition for number, edition in there.items()
        }
        assert await count_lacking(pool, change.collection_id, change.new.generation_id) == 0
        await assert_consistent(pool)


async def eventually_in(pool: Pool, state: str, seconds: float = 20.0) -> Reembedding:
    async def reached() -> Reembedding | None:
        change = await get_reembedding(pool, "default", "default")
        return change if change.state == state else None

    return await eventually(reached, seconds)


async def test_an_ingest_that_began_before_the_switch_ends_in_what_answers_after_it(pool: Pool) -> None:
    own = HashingEmbedder()
    await fill(pool, own, documents(5))
    async with second_server() as server, both(own) as embedders:
        await made_ready(pool, embedders, server.base_url)
        halfway, goes_on = asyncio.Event(), asyncio.Event()

        async def source() -> AsyncIterator[SourceDocument]:
            for number in range(100, 300):
                yield document(number)
            halfway.set()
            await goes_on.wait()
            yield document(2, edition=1)
            long = " ".join(f"Sentence {each} of subject999 fills the log." for each in range(2500))
            yield SourceDocument("long", "Long", long)
            for number in range(300, 310):
                yield document(number)

        async def embedder_of(collection: Collection) -> Embedder:
            return await embedders.of(collection.embedder, collection.embedder_spec)

        running = asyncio.create_task(ingest(pool, "default", "default", source(), own, embedder_of=embedder_of))
        await halfway.wait()
        change = await switched(pool, embedders)
        goes_on.set()
        report = await running
        assert (report.added, report.replaced, report.rejected_count) == (211, 1, 0)
        assert await count_lacking(pool, change.collection_id, change.new.generation_id) == 0
        assert (await collection_of(pool)).document_count == 216
        assert (await found(pool, embedders, 305))[0] == "doc-305"
        assert (await found(pool, embedders, 999))[0] == "long"
        await Reembedder(pool, embedders, no_scan).bring_up_to_date(change.collection_id)
        assert await count_lacking(pool, change.collection_id, change.former.generation_id) == 0
        await assert_consistent(pool)


PROGRAM = """
import asyncio, sys
from standard.corpus.reembed.worker import Reembedder
from standard.database.pool import DatabaseConfig, open_pool
from tests.support.hashing_embedder import HashingEmbedder
from tests.support.two_embedders import both, no_scan

async def main():
    async with open_pool(DatabaseConfig(url=sys.argv[1])) as pool, both() as embedders:
        print("ready", flush=True)
        await Reembedder(pool, embedders, no_scan).follow()

asyncio.run(main())
"""


@pytest.mark.parametrize("seed", range(2))
async def test_a_worker_that_is_killed_leaves_whole_documents_and_the_next_one_goes_on(
    pool: Pool, database_url: str, seed: int
) -> None:
    await fill(pool, HashingEmbedder(), documents(300))
    async with second_server() as server, both() as embedders:
        change = await started(pool, embedders, server.base_url)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, database_url, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"

        async def begun() -> bool:
            left = await count_lacking(pool, change.collection_id, change.new.generation_id)
            return left < 300 - 60 * seed

        await eventually(begun, 20.0)
        process.kill()
        await process.wait()
        await assert_consistent(pool)
        left = await count_lacking(pool, change.collection_id, change.new.generation_id)
        asked = len(server.others)
        await Reembedder(pool, embedders, no_scan).bring_up_to_date(change.collection_id)
        assert (await get_reembedding(pool, "default", "default")).state == "ready"
        if left < 200:
            assert len(server.others) - asked < 300, "what was done is not done again"
        await switched(pool, embedders)
        await assert_consistent(pool)
        assert len({row[0] for row in await contents(pool) if row[8] is not None}) == 300


async def test_an_endpoint_that_goes_away_pauses_the_change_with_its_reason_and_it_goes_on_by_itself(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "LONGEST_WAIT", 0)
    await fill(pool, HashingEmbedder(), documents(40))
    async with second_server() as server, both() as embedders:
        await started(pool, embedders, server.base_url)
        server.embedding_failure = Failure(500, "out of memory")
        async with following(pool, embedders, monkeypatch):
            paused = await eventually_in(pool, "paused", 40.0)
            assert "answered 500" in paused.problem
            assert paused.attempts >= worker.PAUSED_AFTER
            assert (await found(pool, embedders, 3))[0] == "doc-003"
            with pytest.raises(FailedPrecondition, match=r"are not complete \(paused, 40 documents"):
                await switched(pool, embedders)
            server.embedding_failure = None
            ready = await eventually_in(pool, "ready", 20.0)
            assert (ready.problem, ready.attempts) == ("", 0)
        server.embedding_failure = Failure(500, "out of memory")
        with pytest.raises(EmbedderUnavailable):
            await switched(pool, embedders)
        assert (await collection_of(pool)).embedder.id == "hashing"


async def test_vectors_of_another_length_than_at_the_start_never_get_in(pool: Pool) -> None:
    await fill(pool, HashingEmbedder(), documents(3))
    async with second_server() as server, both() as embedders:
        change = await started(pool, embedders, server.base_url)
        server.dimensions = 32
        with pytest.raises(EmbedderUnavailable, match="gave vectors of 32 dimensions, not 48"):
            await Reembedder(pool, embedders, no_scan).bring_up_to_date(change.collection_id)
        assert await count_lacking(pool, change.collection_id, change.new.generation_id) == 3


async def test_what_cannot_be_changed_is_refused_at_the_start(pool: Pool) -> None:
    await fill(pool, HashingEmbedder(), documents(3))
    async with second_server(4001) as server, both() as embedders:
        with pytest.raises(InvalidInput, match=r"gives 4001 dimensions; 4,000"):
            await started(pool, embedders, server.base_url)
        with pytest.raises(FailedPrecondition, match=r"is embedded with hashing .* already"):
            await start_reembedding(pool, "default", "default", EmbedderSpec("own"), embedders, by="")
        with pytest.raises(EmbedderUnavailable, match="cannot be reached"):
            await started(pool, embedders, "http://127.0.0.1:9/v1")
        with pytest.raises(NotFound):
            await start_reembedding(pool, "default", "nowhere", endpoint(server.base_url), embedders, by="")
        assert await partitions(pool) == 3


async def test_a_change_is_cancelled_at_any_point_and_leaves_nothing(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(pool, HashingEmbedder(), documents(200))
    before = await contents(pool)
    async with second_server() as server, both() as embedders, following(pool, embedders, monkeypatch):
        for pause in (0.0, 0.1, 0.5):
            change = await started(pool, embedders, server.base_url)
            await asyncio.sleep(pause)
            await cancel(pool, "default", "default", by="tests")
            assert await reembedding_of(pool, change.collection_id) is None
            assert await partitions(pool) == 3
        assert await contents(pool) == before
        await started(pool, embedders, server.base_url)
        await eventually_in(pool, "ready")
        await switched(pool, embedders)
        with pytest.raises(FailedPrecondition, match="roll it back first"):
            await cancel(pool, "default", "default", by="tests")
        await delete_collection(pool, "default", "default")
        assert await partitions(pool) == 0


async def test_a_change_that_could_not_be_cancelled_goes_on(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(pool, HashingEmbedder(), documents(3))
    monkeypatch.setattr(collections, "_DROP_ATTEMPTS", 1)
    async with second_server() as server, both() as embedders:
        change = await started(pool, embedders, server.base_url)
        async with pool.connection() as reader, reader.transaction():
            await reader.execute("select count(*) from chunk")  # what reads it keeps it from being dropped
            with pytest.raises(DatabaseUnavailable, match="too busy"):
                await cancel(pool, "default", "default", by="tests")
        await Reembedder(pool, embedders, no_scan).bring_up_to_date(change.collection_id)
        assert (await get_reembedding(pool, "default", "default")).state == "ready"


async def test_a_change_that_is_begun_again_right_after_it_was_cancelled_is_worked_at(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(pool, HashingEmbedder(), documents(3))
    async with second_server() as server, both() as embedders, following(pool, embedders, monkeypatch):
        monkeypatch.setattr(worker, "LOOK_SECONDS", 0.5)
        for _ in range(3):
            await started(pool, embedders, server.base_url)
            await eventually_in(pool, "ready")
            await cancel(pool, "default", "default", by="tests")


async def test_what_is_replaced_while_a_change_begins_is_in_it_as_it_is_now(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(pool, HashingEmbedder(), documents(3))
    async with second_server() as server, both() as embedders:

        async def put_late(conn: Connection, owner: int, given: Sequence[tuple[SourceDocument, str]]) -> dict[str, int]:
            await made_ready(pool, embedders, server.base_url)  # after the writer began, before it locked anything
            return await put_documents(conn, owner, given)

        monkeypatch.setattr("standard.corpus.stages.write.put_documents", put_late)
        await fill(pool, HashingEmbedder(), [document(1, edition=2)])
        change = await get_reembedding(pool, "default", "default")
        assert await count_lacking(pool, change.collection_id, change.new.generation_id) == 1
        await switched(pool, embedders)
        text = "edition2"
        vector = (await embedders.own.embed_queries([text]))[0]
        best = (await retriever(pool, embedders).search(Scope(), text, vector, k=1)).passages[0].passage
        assert (best.document_id, text in best.text.raw) == ("doc-001", True)
        await assert_consistent(pool)


async def test_only_one_change_at_a_time_and_the_same_one_goes_on(pool: Pool) -> None:
    await fill(pool, HashingEmbedder(), documents(2))
    async with second_server() as server, second_server(16) as third, both() as embedders:
        first = await started(pool, embedders, server.base_url)
        again = await started(pool, embedders, server.base_url)
        assert again.new.generation_id == first.new.generation_id
        with pytest.raises(FailedPrecondition, match=r"is being changed to openai:second .*cancel that first"):
            await started(pool, embedders, third.base_url)
        assert await partitions(pool) == 6


async def test_a_run_stays_with_the_generation_that_it_read_first(pool: Pool) -> None:
    # cut differently by either embedder: 200 words are one chunk for one, two for the other
    text = " ".join(f"Line {number} tells of the lamp and its oil." for number in range(60))
    await fill(pool, HashingEmbedder(), [SourceDocument("lamp", "Lamp", text), *documents(4)])
    async with second_server() as server, both() as embedders:
        await made_ready(pool, embedders, server.base_url)
        searching = retriever(pool, embedders)
        reader = CorpusReader(pool, searching)
        vector = (await embedders.own.embed_queries(["lamp oil"]))[0]

        async def run() -> None:
            pin_generations()
            first = (await searching.search(Scope(), "lamp oil", vector, k=2)).passages[0].passage
            await switched(pool, embedders)
            await asyncio.sleep(0.1)
            again = (await searching.search(Scope(), "lamp oil", vector, k=2)).passages[0].passage
            assert (again.passage_id, again.text) == (first.passage_id, first.text)
            section = await reader.read_section(Scope(), first, neighbours=False)
            assert first.text.raw in section.text.raw
            await finish(pool, "default", "default", by="tests")
            gone_on = (await searching.search(Scope(), "lamp oil", vector, k=2)).passages
            assert gone_on[0].passage.document_id == "lamp"

        await asyncio.create_task(run())


async def test_the_tools_of_the_loop_work_on_the_new_vectors(pool: Pool) -> None:
    await fill(pool, HashingEmbedder(), documents(10))
    async with second_server() as server, both() as embedders:
        await made_ready(pool, embedders, server.base_url)
        await switched(pool, embedders)
        reader = CorpusReader(pool, retriever(pool, embedders))
        vector = (await embedders.own.embed_queries(["subject4"]))[0]
        by_meaning = await reader.semantic_search(Scope(), "subject4", vector, k=3)
        assert by_meaning[0].passage.document_id == "doc-004"
        passages = [each.passage for each in by_meaning[:1]]
        linked = await reader.find_linked(Scope(), passages, question="Log 5 and subject5", vector=vector, k=3)
        assert {each.passage.document_id for each in linked} <= {f"doc-{each:03}" for each in range(10)}
        result = await retriever(pool, embedders).search(Scope(), "subject4", vector, k=3)
        assert result.vectors is None, "another model's vectors say nothing to a routing model made for ours"
        assert len(result.candidates) == 10


async def test_verdicts_of_a_policy_that_was_set_meanwhile_hold_after_the_switch(pool: Pool) -> None:
    await fill(pool, HashingEmbedder(), documents(4))

    def scan_of(collection: Collection) -> tuple[Scan, str]:
        verdict = ScanVerdict("quarantine" if collection.scan_policy else "pass", (), "", f"1:{collection.scan_policy}")
        return (lambda title, text: verdict), verdict.rules_version  # noqa: ARG005 - the signature of a scan

    async with second_server() as server, both() as embedders:
        change = await started(pool, embedders, server.base_url)
        await Reembedder(pool, embedders, scan_of).bring_up_to_date(change.collection_id)
        new = await collection_at(pool, change.new.generation_id)
        assert dict(await count_verdicts(pool, new)) == {"pass": new.passage_count}
        await set_scan_policy(pool, "default", "default", "strict")
        await switch(pool, "default", "default", embedders, scan_of, by="tests")
        assert dict(await count_verdicts(pool, await collection_of(pool))) == {"quarantine": new.passage_count}


async def test_both_generations_are_compared_by_questions_and_by_sentences(pool: Pool) -> None:
    await fill(pool, HashingEmbedder(), documents(12))
    async with second_server() as server, both() as embedders:
        change = await made_ready(pool, embedders, server.base_url)
        searching = retriever(pool, embedders)

        async def search(text: str, k: int) -> SearchResult:
            return await searching.search(Scope(), text, (await embedders.own.embed_queries([text]))[0], k=k)

        asked = [Asked("What of subject3?", frozenset({"doc-003"})), Asked("What of subject4?")]
        report = await compare(change, asked, search, k=3)
        assert (report.questions, report.judged, report.former_recall, report.new_recall) == (2, 1, 1.0, 1.0)
        assert 0.0 < report.overlap <= 1.0
        assert report.former_seconds > 0.0 < report.new_seconds
        sentences = await sampled(pool, change, 6)
        assert len(sentences) == 6
        assert await sampled(pool, change, 6) == sentences
        report = await compare(change, sentences, search, k=3)
        assert report.judged == 6
        assert report.former_recall is not None
        with pytest.raises(FailedPrecondition, match="nothing to compare"):
            await compare(change, [], search, k=3)


async def test_the_index_is_there_before_the_switch_and_disk_is_estimated(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from standard.corpus import index

    await fill(pool, HashingEmbedder(), documents(60))
    assert await disk_needed(pool, await collection_of(pool), 1024) > 10_000
    assert await disk_needed(pool, await collection_of(pool), 48) < await disk_needed(
        pool, await collection_of(pool), 768
    )
    monkeypatch.setattr(worker, "index_beside", lambda pool, number: index.index_beside(pool, number, threshold=10))
    async with second_server() as server, both() as embedders:
        change = await made_ready(pool, embedders, server.base_url)
        async with pool.connection() as conn:
            name = index.index_name(change.new.generation_id)
            valid = await (
                await conn.execute("select indisvalid from pg_index where indexrelid = to_regclass(%s)", [name])
            ).fetchone()
        assert valid == (True,)
        await switched(pool, embedders)
        view = await retriever(pool, embedders).directory.view("default", "default")
        assert view.indexed
        assert (await found(pool, embedders, 7))[0] == "doc-007"
