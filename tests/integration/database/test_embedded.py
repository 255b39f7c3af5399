"""The embedded PostgreSQL and the processes that share it: real servers, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest

from standard.database.account import CAP_DAC_READ_SEARCH, Account, become
from standard.database.embedded import start_embedded
from standard.domain.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def prepared() -> Iterator[Path]:
    """A data directory with a new cluster: copying one is quicker than making one."""
    with tempfile.TemporaryDirectory(prefix="pm-prepared-", ignore_cleanup_errors=True) as folder:
        start_embedded(Path(folder), durable=False).close()
        yield Path(folder)


@pytest.fixture
def data_directory(empty_directory: Path, prepared: Path) -> Path:
    """A data directory whose server was started and stopped before."""
    subprocess.run(["cp", "-a", prepared / "postgres", empty_directory], check=True)
    return empty_directory


@pytest.fixture
def empty_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pm-embedded-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
        assert left_behind(Path(folder)) == [], "no process of the data directory is left"


def left_behind(folder: Path, seconds: float = 15.0) -> list[str]:
    """Return the command lines of processes that still name the folder, after some time to end."""
    until = time.monotonic() + seconds
    while True:
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            line = " ".join(process.info["cmdline"] or [])
            if str(folder) in line and process.pid != os.getpid() and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(line)
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.05)


@contextmanager
def user(folder: Path, **options: object) -> Iterator[subprocess.Popen[str]]:
    """Run another process that uses the server of the folder; it is gone at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.postgres_user", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        **options,  # type: ignore[call-overload]
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def greeting(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the process ended before it was connected"
    value: dict[str, object] = json.loads(line)
    return value


def is_gone(pid: object, seconds: float = 15.0) -> bool:
    assert isinstance(pid, int)
    until = time.monotonic() + seconds
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def test_data_survives_a_restart_and_the_second_start_is_quick(empty_directory: Path) -> None:
    data_directory = empty_directory
    server = start_embedded(data_directory)
    with psycopg.connect(server.url) as conn:
        conn.execute("create table t as select 42 as answer")
        assert conn.execute("show fsync").fetchone() == ("on",)
        assert conn.execute("show timezone").fetchone() == ("UTC",)
    server.close()
    assert is_gone(server.pid, 0.0), "close returns when the last user's server has stopped"
    began = time.monotonic()
    again = start_embedded(data_directory)
    seconds = time.monotonic() - began
    with psycopg.connect(again.url) as conn:
        assert conn.execute("select answer from t").fetchone() == (42,)
    again.close()
    assert seconds < 5, "the goal is one second on an idle machine; a first start takes several"


def test_the_password_is_not_shown_and_is_needed(data_directory: Path) -> None:
    server = start_embedded(data_directory, durable=False)
    try:
        password = (data_directory / "postgres" / "password").read_text()
        assert (data_directory / "postgres" / "password").stat().st_mode & 0o077 == 0
        assert password in server.url
        assert password not in repr(server)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.url.replace(password, "wrong"))
    finally:
        server.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_server_ends_with_the_process_that_used_it(data_directory: Path, number: signal.Signals) -> None:
    with user(data_directory) as process:
        pid = greeting(process)["pid"]
        process.send_signal(number)
        process.wait(15)
        assert is_gone(pid)


def test_ctrl_c_at_a_terminal_reaches_the_user_and_not_the_server_behind_it(data_directory: Path) -> None:
    with user(data_directory, start_new_session=True) as process:
        answer = greeting(process)
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does: the whole foreground group
        assert process.wait(20) == 130
        assert is_gone(answer["pid"])
        assert "database system is shut down" in (data_directory / "postgres" / "postgres.log").read_text()


def test_two_processes_share_a_server_and_the_last_one_stops_it(data_directory: Path) -> None:
    with user(data_directory) as first, user(data_directory) as second:
        pid = greeting(first)["pid"]
        assert greeting(second)["pid"] == pid
        first.kill()
        first.wait(10)
        time.sleep(0.5)
        assert not is_gone(pid, 0.0), "the second process still uses it"
        third = start_embedded(data_directory)
        assert third.pid == pid
        second.send_signal(signal.SIGTERM)
        second.wait(10)
        with psycopg.connect(third.url) as conn:
            assert conn.execute("select 1").fetchone() == (1,)
        third.close()
        assert is_gone(pid)


def test_many_that_start_at_once_find_one_server(empty_directory: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        servers = list(threads.map(lambda _: start_embedded(empty_directory, durable=False), range(8)))
    assert len({server.pid for server in servers}) == 1
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda server: server.close(), servers))
    assert is_gone(servers[0].pid)


def test_one_that_starts_while_the_last_one_stops_gets_a_server(data_directory: Path) -> None:
    server = start_embedded(data_directory, durable=False)
    for _ in range(5):
        with ThreadPoolExecutor(2) as threads:
            closing = threads.submit(server.close)
            starting = threads.submit(start_embedded, data_directory, durable=False)
            closing.result(30)
            server = starting.result(30)
        with psycopg.connect(server.url) as conn:
            assert conn.execute("select 1").fetchone() == (1,)
    server.close()


def test_a_server_whose_keeper_was_killed_is_adopted_and_still_stopped(data_directory: Path) -> None:
    server = start_embedded(data_directory, durable=False)
    keeper = int((data_directory / "postgres" / "keeper.lock").read_text())
    os.kill(keeper, signal.SIGKILL)
    assert is_gone(keeper)
    with user(data_directory) as process:
        assert greeting(process)["pid"] == server.pid, "the running server was joined, not replaced"
        server.close()
        process.kill()
        process.wait(10)
        assert is_gone(server.pid)


def test_the_last_user_stops_a_server_without_a_keeper(data_directory: Path) -> None:
    server = start_embedded(data_directory, durable=False)
    os.kill(int((data_directory / "postgres" / "keeper.lock").read_text()), signal.SIGKILL)
    server.close()
    assert is_gone(server.pid)


def test_a_crashed_server_recovers_what_was_committed(data_directory: Path) -> None:
    server = start_embedded(data_directory)
    with psycopg.connect(server.url) as conn:
        conn.execute("create table t as select 42 as answer")
    os.kill(int((data_directory / "postgres" / "keeper.lock").read_text()), signal.SIGKILL)
    os.kill(server.pid, signal.SIGKILL)
    server.close()
    assert left_behind(data_directory) == []
    again = start_embedded(data_directory)
    with psycopg.connect(again.url) as conn:
        assert conn.execute("select answer from t").fetchone() == (42,)
    again.close()


def test_a_process_id_that_now_belongs_to_somebody_else_is_no_server(data_directory: Path) -> None:
    start_embedded(data_directory, durable=False).close()
    file = data_directory / "postgres" / "cluster" / "postmaster.pid"
    cluster = file.parent
    file.write_text(f"{os.getpid()}\n{cluster}\n1700000000\n5432\n/nowhere\n\n 1 1\nready   \n")
    server = start_embedded(data_directory, durable=False)
    with psycopg.connect(server.url) as conn:
        assert conn.execute("select 1").fetchone() == (1,)
    server.close()


def test_an_interrupted_first_start_leaves_nothing_in_the_way(empty_directory: Path) -> None:
    making = empty_directory / "postgres" / "cluster.making"
    making.mkdir(parents=True)
    (making / "PG_VERSION").write_text("18\n")
    server = start_embedded(empty_directory, durable=False)
    server.close()
    assert not making.exists()


def test_loopback_tcp_with_a_password_works_too(data_directory: Path) -> None:
    server = start_embedded(data_directory, transport="tcp", durable=False)
    try:
        assert "127.0.0.1" in server.url
        with psycopg.connect(server.url) as conn:
            assert conn.execute("select host(inet_server_addr())").fetchone() == ("127.0.0.1",)
    finally:
        server.close()


def test_a_path_too_long_for_a_socket_is_no_obstacle(empty_directory: Path) -> None:
    deep = empty_directory / ("d" * 100) / ("e" * 60)
    server = start_embedded(deep, durable=False)
    try:
        with psycopg.connect(server.url) as conn:
            assert conn.execute("select 1").fetchone() == (1,)
    finally:
        server.close()
        for folder in Path(tempfile.gettempdir()).glob("pointsman-*-*"):
            if not any(folder.iterdir()):
                folder.rmdir()


def test_a_folder_that_holds_something_else_is_left_alone(empty_directory: Path) -> None:
    cluster = empty_directory / "postgres" / "cluster"
    cluster.mkdir(parents=True)
    (cluster / "precious").write_text("mine")
    with pytest.raises(DatabaseUnavailable, match="holds no PostgreSQL cluster"):
        start_embedded(empty_directory)
    assert (cluster / "precious").read_text() == "mine"


def test_a_cluster_of_another_version_is_refused_with_the_way_out(empty_directory: Path) -> None:
    cluster = empty_directory / "postgres" / "cluster"
    cluster.mkdir(parents=True)
    (cluster / "PG_VERSION").write_text("16\n")
    with pytest.raises(DatabaseUnavailable, match="was made by PostgreSQL 16, this is 18: dump it"):
        start_embedded(empty_directory)


def test_a_broken_cluster_says_where_its_log_is(data_directory: Path) -> None:
    start_embedded(data_directory, durable=False).close()
    (data_directory / "postgres" / "cluster" / "global" / "pg_control").unlink()
    with pytest.raises(DatabaseUnavailable, match=r"did not start:(.|\n)*pg_control"):
        start_embedded(data_directory, durable=False)


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="needs root, to mount a small disk")
def test_a_full_disk_is_named(empty_directory: Path) -> None:
    disk = empty_directory / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], check=False, capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("this container may not mount a file system")
    try:
        with pytest.raises(DatabaseUnavailable, match=r"the disk of .* is full"):
            start_embedded(disk)
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="needs root, to become another user")
def test_an_ordinary_user_runs_it_and_may_not_take_the_folder_of_another(data_directory: Path) -> None:
    data_directory.chmod(0o755)
    own = data_directory / "own"
    own.mkdir()
    os.chown(own, 65534, 65534)
    program = "import sys; from tests.support.postgres_user import main; main(sys.argv[1:])"

    def as_nobody(folder: Path) -> subprocess.CompletedProcess[str]:
        # the capability lets the user reach an interpreter that lies under /root, as pyenv's do
        return subprocess.run(
            [sys.executable, "-c", program, str(folder)],
            input="\n",
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
            preexec_fn=become(Account(65534, 65534, CAP_DAC_READ_SEARCH)),
        )

    ordinary = as_nobody(own)
    assert ordinary.returncode == 0, ordinary.stderr
    assert (own / "postgres" / "cluster").stat().st_uid == 65534

    start_embedded(data_directory, durable=False).close()
    foreign = as_nobody(data_directory)
    assert foreign.returncode != 0
    assert "belongs to another user" in foreign.stderr

    server = start_embedded(own, durable=False)  # root joins in the owner's place
    assert psutil.Process(server.pid).uids().real == 65534
    server.close()


@pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux", reason="needs root, whose server must be another user"
)
def test_root_uses_a_folder_that_others_cannot_enter(empty_directory: Path) -> None:
    closed = empty_directory / "closed"
    closed.mkdir(mode=0o700)
    server = start_embedded(closed / "data", durable=False)
    try:
        assert psutil.Process(server.pid).uids().effective != 0
        assert closed.stat().st_mode & 0o777 == 0o700, "nothing was opened for that"
        with psycopg.connect(server.url) as conn:
            assert conn.execute("select 1").fetchone() == (1,)
    finally:
        server.close()
