"""`pointsman` as a child process that tells on SIGUSR1 how many asyncio tasks are alive.

Run as `python -m tests.chaos.watched ARGUMENTS`. The number is appended to the file named by POINTSMAN_CHAOS_CENSUS;
nothing else differs from `pointsman`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from pathlib import Path
from types import FrameType


def _tell(_number: int, _frame: FrameType | None) -> None:
    gc.collect()
    alive = sum(1 for thing in gc.get_objects() if isinstance(thing, asyncio.Task) and not thing.done())
    with Path(os.environ["POINTSMAN_CHAOS_CENSUS"]).open("a") as census:
        census.write(f"{alive}\n")


if __name__ == "__main__":
    from router.cli.main import main

    signal.signal(signal.SIGUSR1, _tell)
    main()
