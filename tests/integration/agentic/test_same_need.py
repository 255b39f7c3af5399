"""The similarity guard's decision with the real embedder, on pairs written by hand."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from agentic.same_need.analysis import analyse
from agentic.same_need.calibrate import LAST, Judged, choose, cosine_rates, held_out, judge_pairs, rates, read_pairs
from agentic.same_need.check import QueryPair, check_queries
from agentic.same_need.decision import compare_needs, shipped_thresholds
from agentic.settings import GuardSettings
from standard.embedding.factory import open_embedder
from standard.embedding.protocol import Embedder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedder() -> AsyncIterator[Embedder]:
    async with open_embedder() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judged(embedder: Embedder) -> list[Judged]:
    return await judge_pairs(read_pairs(), embedder.embed_queries)


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_there_are_enough_pairs_of_both_sorts() -> None:
    pairs = read_pairs()
    assert len(pairs) >= 400
    assert len({pair.id for pair in pairs}) == len(pairs)
    assert len({pair.kind for pair in pairs}) >= 20
    assert 0.35 < sum(pair.same for pair in pairs) / len(pairs) < 0.65


async def test_held_out_kinds_are_within_the_targets(judged: list[Judged]) -> None:
    total, _ = held_out(judged)
    assert total.wrongly_refused <= 0.02
    assert total.blocked >= 0.80


async def test_pairs_judged_last_are_as_the_documentation_tells(judged: list[Judged]) -> None:
    last = rates([item for item in judged if item.pair.id.startswith(LAST)], shipped_thresholds())
    assert last.wrongly_refused <= 0.02  # one of 79
    assert last.blocked >= 0.80


async def test_the_shipped_threshold_is_the_calibrated_one(judged: list[Judged], embedder: Embedder) -> None:
    assert choose(judged, embedder.id) == shipped_thresholds()


async def test_it_beats_the_plain_cosine_rule(embedder: Embedder, judged: list[Judged]) -> None:
    pairs = [QueryPair(pair.id, pair.a, pair.b) for pair in read_pairs()]
    same = {pair.id for pair in read_pairs() if pair.same}
    by_need = await check_queries(pairs, embedder.embed_queries, GuardSettings())
    by_cosine = await check_queries(pairs, embedder.embed_queries, GuardSettings(similarity="cosine"))
    assert [check.id for check in by_need] == [pair.id for pair in pairs]
    right_by_need = sum(check.refused == (check.id in same) for check in by_need)
    right_by_cosine = sum(check.refused == (check.id in same) for check in by_cosine)
    assert right_by_need > right_by_cosine + 0.2 * len(pairs)
    told = cosine_rates(judged, GuardSettings().cosine_distance)
    assert round(told.blocked * told.repeats) == sum(check.refused for check in by_cosine if check.id in same)
    assert round(told.wrongly_refused * told.different) == sum(one.refused for one in by_cosine if one.id not in same)


async def test_a_decision_takes_less_than_half_a_millisecond() -> None:
    pairs = read_pairs()
    for pair in pairs:
        compare_needs(pair.a, pair.b, 0.1)  # warm: the lexicon is read once
    spent = []
    for pair in pairs:
        analyse.cache_clear()
        analyse(pair.a)  # the earlier query was analysed when it was made
        started = time.process_time()
        compare_needs(pair.a, pair.b, 0.1)
        spent.append(time.process_time() - started)
    assert sorted(spent)[len(spent) // 2] < 0.0005
