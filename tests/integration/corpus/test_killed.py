"""An ingest that is killed at any moment, without a chance to clean up, and then run again."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from standard.corpus.sources import read_sources
from tests.support.corpora import assert_consistent, collection_of, contents, fill
from tests.support.hashing_embedder import HashingEmbedder

if TYPE_CHECKING:
    from standard.database.pool import Pool

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import asyncio, sys
from standard.corpus.sources import read_sources
from standard.database.pool import DatabaseConfig, open_pool
from tests.support.corpora import fill
from tests.support.hashing_embedder import HashingEmbedder

async def main():
    async with open_pool(DatabaseConfig(url=sys.argv[1])) as pool:
        print("ready", flush=True)
        await fill(pool, HashingEmbedder(seconds_a_passage=0.001), list(read_sources([sys.argv[2]])), prune=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("seed", range(3))
async def test_a_killed_ingest_leaves_whole_documents_and_the_next_one_finishes(
    pool: Pool, database_url: str, tmp_path: Path, seed: int
) -> None:
    for number in range(200):
        (tmp_path / f"{number:03}.md").write_text(f"# Doc {number}\n\n" + f"Sentence {number} says what it says. " * 40)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, database_url, str(tmp_path), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    await asyncio.sleep(random.Random(seed).uniform(0.1, 0.8))
    process.kill()
    await process.wait()
    await assert_consistent(pool)
    report = await fill(pool, HashingEmbedder(), read_sources([str(tmp_path)]), prune=True)
    assert report.added + report.unchanged == 200
    await assert_consistent(pool)
    assert (await collection_of(pool)).document_count == 200
    assert len({row[0] for row in await contents(pool)}) == 200
