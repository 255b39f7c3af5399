"""Files written at once: a reader, or a crash, finds the whole or what was there before."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_at_once(path: Path, text: str, *, private: bool = False) -> None:
    """Write text as UTF-8 in the place of a file; readable by the owner alone if `private`. Raises OSError.

    What was begun beside it is taken away where writing fails.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    mode = 0o600 if private else 0o666
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
            file.write(text)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
