"""Processes that a measurement starts, and what processes cost: CPU seconds and resident memory.

Load comes from processes of their own, so that its work is not counted as the server's.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from standard.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_SLACK_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0


async def started(
    *command: str, environment: Mapping[str, str] | None = None, errors: bool = False
) -> subprocess.Popen[bytes]:
    """Start a process whose standard output, or with `errors` its standard error, can be read.

    By the standard library, which does not fork: gRPC's threads, and uvloop's way of starting processes, do not go
    together. `environment` None = this process's.
    """
    stdout, stderr = (None, subprocess.PIPE) if errors else (subprocess.PIPE, None)
    return await asyncio.to_thread(subprocess.Popen, command, env=environment, stdout=stdout, stderr=stderr)


async def load_process(
    module: str, *arguments: str, seconds: float, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run a load generator for `seconds`, its last argument, as a process, and return the JSON that it prints.

    Raises FailedPrecondition where it fails, or does not end.
    """
    command = (sys.executable, "-m", module, *arguments, f"{seconds:g}")
    found: dict[str, Any] = json.loads(
        await output_of(*command, seconds=seconds + _SLACK_SECONDS, environment={**os.environ, **(environment or {})})
    )
    return found


async def output_of(*command: str, seconds: float, environment: Mapping[str, str] | None = None) -> bytes:
    """What a process prints. Raises FailedPrecondition where it fails, or does not end within `seconds`."""
    process = await started(*command, environment=environment)
    try:
        output, _ = await asyncio.to_thread(process.communicate, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise FailedPrecondition(f"`{' '.join(command[1:])}` does not end") from None
    finally:
        await stopped(process)
    if process.returncode:
        raise FailedPrecondition(f"`{' '.join(command[1:])}` failed; its message is above")
    return bytes(output)


async def stopped(process: subprocess.Popen[bytes]) -> None:
    """End a process that is still there: by asking, then by force."""
    if process.poll() is None:
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


@asynccontextmanager
async def telling_process(
    *command: str, seconds: float, environment: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[int, dict[str, Any]]]:
    """Yield the id of a process and the JSON of its first line, which it writes within `seconds`; end it afterwards."""
    process = await started(*command, environment=environment)
    try:
        assert process.stdout is not None  # noqa: S101 - asked for above
        async with asyncio.timeout(seconds):
            line = await asyncio.to_thread(process.stdout.readline)
        if not line:
            raise FailedPrecondition(f"`{' '.join(command[1:])}` ended before it was ready; its message is above")
        yield process.pid, json.loads(line)
    except TimeoutError:
        raise FailedPrecondition(f"`{' '.join(command[1:])}` was not ready within {seconds:g} s") from None
    finally:
        await stopped(process)


async def resident_bytes(pid: int) -> int:
    """Resident memory of a process; by /proc, or by `ps` where there is none."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():  # noqa: ASYNC240
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))  # noqa: ASYNC240
        return int(line.split()[1]) * 1024
    return int(await output_of("ps", "-o", "rss=", "-p", str(pid), seconds=10.0)) * 1024


def cpu_seconds(pid: int) -> float | None:
    """CPU that a process and its children, those that ended included, have used; None without /proc, or it is gone."""
    own = _stat(pid)
    if own is None:
        return None
    ticks = sum(own[11:15])
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or entry.name == str(pid):
            continue
        found = _stat(int(entry.name))
        if found is not None and found[1] == pid:
            ticks += sum(found[11:15])
    return ticks / float(os.sysconf("SC_CLK_TCK"))


def parent_of(pid: int) -> int | None:
    """The parent of a process; None without /proc, or it is gone."""
    found = _stat(pid)
    return None if found is None else found[1]


def name_of(pid: int) -> str:
    """The name of a process's program, "" without /proc or where it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[int] | None:
    """The numbers of /proc/PID/stat from the state (as 0) on, which proc(5) counts as field 3; None without any."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return [0, *(int(field) for field in fields[1:20])]
