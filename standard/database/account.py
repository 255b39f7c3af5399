"""The account the embedded PostgreSQL runs as.

PostgreSQL refuses to run as root. An ordinary user runs it as himself. Root hands it to an unprivileged account: the
owner of an existing cluster, else `pointsman` where an administrator made one, else `nobody`. Nothing on the machine is
changed for that: no account is created, no folder is opened to others. Where that account could not reach the programs
or the data (a checkout under /root, mode 0700), the server keeps the one Linux capability that lets it pass
(capabilities(7): CAP_DAC_READ_SEARCH, or CAP_DAC_OVERRIDE where containers grant only that).
"""

from __future__ import annotations

import ctypes
import os
import pwd
import stat
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
_ACCOUNTS = ("pointsman", "nobody")
_CAPABILITY_VERSION_3 = 0x20080522
_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2


class NoAccount(Exception):
    """Root has no unprivileged account that could run the server here; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Account:
    """An unprivileged user and group id, and the capability it keeps (None = none)."""

    uid: int
    gid: int
    capability: int | None = None


def choose_account(cluster: Path, programs: Path) -> Account | None:
    """Return the account for a server with this cluster folder and these programs; None = the present user.

    Raises NoAccount where root finds none that could work.
    """
    if os.geteuid() != 0:
        return None
    entry = _entry(cluster)
    if entry is None:
        raise NoAccount(
            f"PostgreSQL does not run as root, and this system has none of the accounts {', '.join(_ACCOUNTS)}. "
            f"Run pointsman as an ordinary user, or create an account named pointsman."
        )
    wanted = _capability_needed(entry.pw_uid, cluster, programs)
    if wanted is None:
        return Account(entry.pw_uid, entry.pw_gid)
    held = effective_capabilities()
    for capability in wanted:
        if held >> capability & 1:
            return Account(entry.pw_uid, entry.pw_gid, capability)
    raise NoAccount(
        f"PostgreSQL does not run as root, and the account {entry.pw_name} cannot reach {cluster} or {programs}, "
        f"because a folder above is closed to others. Run pointsman as an ordinary user, or choose a data directory "
        f"(and an installation) that {entry.pw_name} can reach: POINTSMAN_DATA_DIR."
    )


def _entry(cluster: Path) -> pwd.struct_passwd | None:
    """Account of the cluster's owner if there is a cluster, else the first of ours that exists."""
    if cluster.exists() and (owner := cluster.stat().st_uid) != 0:
        try:
            return pwd.getpwuid(owner)
        except KeyError:
            return None
    for name in _ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid > 0:  # macOS numbers nobody -2, which setuid does not take
            return entry
    return None


def _capability_needed(uid: int, cluster: Path, programs: Path) -> tuple[int, ...] | None:
    """Return the capabilities of which one is needed, mildest first; None where none is."""
    program = (programs / "postgres").stat()
    if program.st_mode & (stat.S_IROTH | stat.S_IXOTH) != stat.S_IROTH | stat.S_IXOTH:
        return (CAP_DAC_OVERRIDE,)
    if _is_reachable(uid, [*cluster.parents, programs, *programs.parents]):
        return None
    return (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE)


def _is_reachable(uid: int, folders: Iterable[Path]) -> bool:
    """Tell whether others, or the folder's owner if that is `uid`, may pass through every folder that exists."""
    for folder in folders:
        try:
            entry = folder.stat()
        except FileNotFoundError:
            continue
        if not entry.st_mode & (stat.S_IXUSR if entry.st_uid == uid else stat.S_IXOTH):
            return False
    return True


def effective_capabilities() -> int:
    """Return this process's effective capabilities as a bit set; 0 where the system has no capabilities."""
    if sys.platform != "linux":
        return 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def become(account: Account) -> Callable[[], None]:
    """Return a function that turns a process of root into `account`; it runs between fork and exec."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), "cannot keep a capability for the embedded PostgreSQL")

    def change() -> None:
        if account.capability is not None:
            check(libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0))
        os.setgroups([])
        os.setgid(account.gid)
        os.setuid(account.uid)
        if account.capability is not None:
            bit = 1 << account.capability
            header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
            data = ctypes.create_string_buffer(struct.pack("=6I", bit, bit, bit, 0, 0, 0))
            check(libc.capset(header, data))
            check(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, account.capability, 0, 0))

    return change
