"""Questions that arrive together are encoded together; nobody waits for company in vain, and everybody gets an end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from standard.domain.errors import EmbedderUnavailable, InvalidInput, Overloaded
from standard.embedding.batching import BatchedEmbedder, MicroBatcher
from standard.embedding.config import EmbeddingConfig
from standard.embedding.factory import open_embedder


@dataclass
class Encoder:
    """Gives each text the vector (its length, 1), records batches, and can be held, slowed or told to fail."""

    seconds: float = 0.0
    failure: Exception | None = None
    batches: list[list[str]] = field(default_factory=list)
    begun: asyncio.Condition = field(default_factory=asyncio.Condition)
    cancelled: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.open.set()

    async def __call__(self, texts: list[str]) -> NDArray[np.float32]:
        async with self.begun:
            self.batches.append(texts)
            self.begun.notify_all()
        try:
            await asyncio.sleep(self.seconds)
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failure is not None:
            raise self.failure
        return np.array([[len(text), 1] for text in texts], np.float32).reshape(len(texts), 2)

    async def until(self, batches: int) -> None:
        """Wait until so many batches have begun."""
        async with asyncio.timeout(10), self.begun:
            await self.begun.wait_for(lambda: len(self.batches) >= batches)


def texts(first: int, last: int) -> list[str]:
    return ["x" * length for length in range(first, last)]


async def hold_one(batcher: MicroBatcher, encoder: Encoder) -> asyncio.Task[NDArray[np.float32]]:
    """Start a question that stays in the encoder until `encoder.open` is set."""
    encoder.open.clear()
    held = asyncio.create_task(batcher.embed(["held"]))
    await encoder.until(1)
    return held


async def test_a_question_on_an_idle_system_is_encoded_at_once_and_alone() -> None:
    encoder = Encoder()
    loop = asyncio.get_running_loop()
    async with MicroBatcher(encoder, delay_seconds=5.0) as batcher:
        began = loop.time()
        await batcher.embed(["one"])
        await batcher.embed(["two"])
        assert loop.time() - began < 2.0
    assert encoder.batches == [["one"], ["two"]]


async def test_questions_that_arrive_while_one_is_encoded_go_together() -> None:
    encoder = Encoder()
    async with MicroBatcher(encoder) as batcher:
        held = await hold_one(batcher, encoder)
        others = [asyncio.create_task(batcher.embed([text])) for text in texts(1, 6)]
        await asyncio.sleep(0)
        encoder.open.set()
        results = await asyncio.gather(held, *others)
    assert encoder.batches == [["held"], texts(1, 6)]
    assert [result.tolist() for result in results] == [[[4, 1]], *([[length, 1]] for length in range(1, 6))]


async def test_after_company_a_question_waits_for_more_but_no_longer_than_the_delay() -> None:
    encoder = Encoder()
    loop = asyncio.get_running_loop()
    async with MicroBatcher(encoder, delay_seconds=0.5, company_seconds=60) as batcher:
        held = await hold_one(batcher, encoder)
        pair = [asyncio.create_task(batcher.embed([text])) for text in ("a", "b")]
        await asyncio.sleep(0)
        encoder.open.set()
        await asyncio.gather(held, *pair)
        began = loop.time()
        first = asyncio.create_task(batcher.embed(["c"]))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(batcher.embed(["d"]))
        await asyncio.gather(first, second)
        assert encoder.batches[-1] == ["c", "d"]
        assert loop.time() - began < 0.4  # as many as last time: no reason to wait on
        began = loop.time()
        await batcher.embed(["alone"])
        assert 0.4 < loop.time() - began < 5.0
        began = loop.time()
        await batcher.embed(["alone again"])
        assert loop.time() - began < 0.4


async def test_a_delay_of_zero_never_waits() -> None:
    encoder = Encoder()
    async with MicroBatcher(encoder, delay_seconds=0.0) as batcher:
        await asyncio.gather(*(batcher.embed([text]) for text in texts(1, 40)))
        await batcher.embed(["alone"])
    assert encoder.batches[-1] == ["alone"]


async def test_a_batch_holds_no_more_than_its_bound() -> None:
    encoder = Encoder()
    async with MicroBatcher(encoder, max_batch=4) as batcher:
        held = await hold_one(batcher, encoder)
        others = [asyncio.create_task(batcher.embed([text])) for text in texts(1, 11)]
        await asyncio.sleep(0)
        encoder.open.set()
        await asyncio.gather(held, *others)
    assert [len(batch) for batch in encoder.batches] == [1, 4, 4, 2]


async def test_long_questions_do_not_pile_up_in_one_batch() -> None:
    encoder = Encoder()
    async with MicroBatcher(encoder) as batcher:
        held = await hold_one(batcher, encoder)
        others = [asyncio.create_task(batcher.embed(["x" * 6000])) for _ in range(3)]
        await asyncio.sleep(0)
        encoder.open.set()
        await asyncio.gather(held, *others)
    assert [len(batch) for batch in encoder.batches] == [1, 1, 1, 1]


async def test_a_call_with_many_texts_is_sliced_and_comes_back_in_order() -> None:
    encoder = Encoder()
    async with MicroBatcher(encoder, max_batch=8, max_queued=16) as batcher:
        vectors = await batcher.embed(texts(0, 100))
    assert vectors[:, 0].tolist() == list(range(100))
    assert max(map(len, encoder.batches)) == 8


async def test_no_texts_give_no_vectors() -> None:
    async with MicroBatcher(Encoder()) as batcher:
        assert (await batcher.embed([])).shape == (0, 2)


async def test_a_question_beyond_the_queue_is_refused_with_advice_and_the_others_are_served() -> None:
    encoder = Encoder()
    async with MicroBatcher(encoder, max_queued=3) as batcher:
        held = await hold_one(batcher, encoder)
        others = [asyncio.create_task(batcher.embed([text])) for text in texts(1, 4)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="max_queued 3") as caught:
            await batcher.embed(["one too many"])
        assert caught.value.retry_after_seconds is not None
        assert caught.value.retry_after_seconds > 0
        encoder.open.set()
        await asyncio.gather(held, *others)
        await batcher.embed(["room again"])


async def test_a_cancelled_question_is_dropped_before_it_is_encoded_and_makes_room() -> None:
    encoder = Encoder()
    async with MicroBatcher(encoder, max_queued=2) as batcher:
        held = await hold_one(batcher, encoder)
        kept, dropped = (asyncio.create_task(batcher.embed([text])) for text in ("kept", "dropped"))
        await asyncio.sleep(0)
        dropped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dropped
        assert batcher.queued == 1
        late = asyncio.create_task(batcher.embed(["late"]))
        await asyncio.sleep(0)
        encoder.open.set()
        await asyncio.gather(held, kept, late)
    assert encoder.batches == [["held"], ["kept", "late"]]


async def test_a_batch_that_nobody_waits_for_any_more_is_cancelled() -> None:
    encoder = Encoder()
    async with MicroBatcher(encoder) as batcher:
        held = await hold_one(batcher, encoder)
        held.cancel()
        with pytest.raises(asyncio.CancelledError):
            await held
        encoder.open.set()
        await batcher.embed(["next"])
    assert encoder.cancelled == 1


async def test_one_who_gives_up_does_not_take_the_batch_along() -> None:
    encoder = Encoder()
    async with MicroBatcher(encoder) as batcher:
        held = await hold_one(batcher, encoder)
        stays, goes = (asyncio.create_task(batcher.embed([text])) for text in ("stays", "goes"))
        await asyncio.sleep(0)
        encoder.open.set()
        await held
        encoder.open.clear()
        await encoder.until(2)
        goes.cancel()
        await asyncio.sleep(0)
        encoder.open.set()
        assert (await stays).tolist() == [[5, 1]]
    assert encoder.cancelled == 0


async def test_an_error_reaches_everyone_of_the_batch_and_the_next_batch_goes_on() -> None:
    encoder = Encoder()
    async with MicroBatcher(encoder) as batcher:
        held = await hold_one(batcher, encoder)
        others = [asyncio.create_task(batcher.embed([text])) for text in texts(1, 4)]
        await asyncio.sleep(0)
        encoder.open.set()
        await held
        encoder.failure = EmbedderUnavailable("the endpoint is away")
        results = await asyncio.gather(*others, return_exceptions=True)
        assert [str(result) for result in results] == ["the endpoint is away"] * 3
        encoder.failure = None
        assert (await batcher.embed(["fine"])).tolist() == [[4, 1]]


async def test_an_encoder_that_loses_a_vector_fails_its_batch_rather_than_mixing_up_callers() -> None:
    async def forgetful(texts: list[str]) -> NDArray[np.float32]:
        return np.ones((len(texts) - 1, 2), np.float32)

    async with MicroBatcher(forgetful) as batcher:
        with pytest.raises(EmbedderUnavailable, match="1 vectors for 2 texts"):
            await batcher.embed(["one", "two"])


async def test_closing_ends_those_in_the_encoder_those_in_the_queue_and_those_who_come() -> None:
    encoder = Encoder()
    async with MicroBatcher(encoder) as batcher:
        held = await hold_one(batcher, encoder)
        queued = asyncio.create_task(batcher.embed(["queued"]))
        await asyncio.sleep(0)
    for task in (held, queued):
        with pytest.raises(EmbedderUnavailable, match="closed"):
            await task
    with pytest.raises(EmbedderUnavailable, match="closed"):
        await batcher.embed(["late"])
    assert encoder.cancelled == 1
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "embed-batches"]


async def test_parallel_batches_run_at_once_where_the_encoder_only_waits() -> None:
    encoder = Encoder()
    async with MicroBatcher(encoder, max_batch=1, parallel=3) as batcher:
        encoder.open.clear()
        tasks = [asyncio.create_task(batcher.embed([text])) for text in texts(1, 6)]
        await asyncio.sleep(0.01)
        assert len(encoder.batches) == 3
        encoder.open.set()
        await asyncio.gather(*tasks)
    assert len(encoder.batches) == 5


async def test_a_bad_question_fails_alone() -> None:
    async with open_embedder(EmbeddingConfig()) as embedder:
        assert isinstance(embedder, BatchedEmbedder)
        results = await asyncio.gather(
            embedder.embed_queries(["Who holds the keys?"]),
            embedder.embed_queries([" "]),
            embedder.embed_queries(["And who else?"]),
            return_exceptions=True,
        )
    assert isinstance(results[1], InvalidInput)
    assert not isinstance(results[0], BaseException)
    assert not isinstance(results[2], BaseException)


async def test_concurrent_questions_get_the_vectors_they_get_alone() -> None:
    questions = [f"Which clause of contract {number} covers storage?" for number in range(40)]
    async with open_embedder(EmbeddingConfig()) as embedder:
        together = await asyncio.gather(*(embedder.embed_queries([question]) for question in questions))
        alone = await embedder.embed_queries(questions[:1])
        assert np.abs(np.concatenate(together)[0] - alone[0]).max() < 1e-5
        assert len({vector.tobytes() for vector in together}) == 40


@settings(max_examples=80, deadline=None)
@given(
    calls=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.booleans()), max_size=25),
    max_batch=st.integers(1, 8),
    parallel=st.integers(1, 3),
    fails=st.booleans(),
)
def test_every_call_ends_with_its_own_vectors_or_an_error(
    calls: list[tuple[int, int, bool]], max_batch: int, parallel: int, fails: bool
) -> None:
    async def check() -> None:
        encoder = Encoder(failure=EmbedderUnavailable("away") if fails else None)
        async with MicroBatcher(
            encoder, max_batch=max_batch, max_queued=12, delay_seconds=0.0005, parallel=parallel
        ) as batcher:

            async def call(size: int, pause: int, gives_up: bool) -> None:
                for _ in range(pause):
                    await asyncio.sleep(0)
                wanted = texts(size, 2 * size)
                task = asyncio.create_task(batcher.embed(wanted))
                if gives_up:
                    await asyncio.sleep(0)
                    task.cancel()
                try:
                    vectors = await task
                except (EmbedderUnavailable, Overloaded, asyncio.CancelledError):
                    return
                assert vectors[:, 0].tolist() == [len(text) for text in wanted]

            async with asyncio.timeout(10):
                await asyncio.gather(*(call(*one) for one in calls))
            assert batcher.queued == 0
        assert all(sum(map(bool, batch)) <= max_batch for batch in encoder.batches)

    asyncio.run(check())
