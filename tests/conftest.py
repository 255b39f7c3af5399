"""Fixtures for everyone: one embedded PostgreSQL a test session, and databases of their own for tests and modules.

    async def test_x(pool): ...                    an open pool on a fresh, migrated database
    def test_y(database_url): ...                  the URL of a fresh, migrated database
    def test_z(empty_database_url): ...            the URL of a fresh database without any table
    def test_m(module_database_url): ...           a migrated database shared by the tests of the module

The server runs without fsync (its databases are thrown away); everything else is as in production.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import pytest_asyncio
from hypothesis import settings

from standard.database.embedded import start_embedded
from standard.database.migrate import migrate
from standard.database.pool import DatabaseConfig, open_pool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from standard.database.embedded import EmbeddedPostgres
    from standard.database.pool import Pool

_numbers = itertools.count(1)


def pytest_configure() -> None:
    """Properties hold on any machine: how long an example takes is measured where time is the matter, with room."""
    settings.register_profile("suite", deadline=None)
    settings.load_profile("suite")


@pytest.fixture(scope="session")
def embedded_postgres() -> Iterator[EmbeddedPostgres]:
    """The session's server. It stops with the session, also where the session is killed."""
    with tempfile.TemporaryDirectory(prefix="pm-tests-", ignore_cleanup_errors=True) as folder:
        server = start_embedded(Path(folder), durable=False)
        try:
            yield server
        finally:
            server.close()


def at_database(url: str, name: str) -> str:
    """Return `url` with another database name."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@contextmanager
def _database(server: EmbeddedPostgres, template: str) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server.url, autocommit=True) as conn:
        conn.execute(f"create database {name} template {template}".encode())
    try:
        yield at_database(server.url, name)
    finally:
        with psycopg.connect(server.url, autocommit=True) as conn:
            conn.execute(f"drop database if exists {name} with (force)".encode())


@pytest.fixture(scope="session")
def migrated_template(embedded_postgres: EmbeddedPostgres) -> str:
    """The name of a migrated database that others are copied from; nobody connects to it."""
    name = "migrated_template"
    with psycopg.connect(embedded_postgres.url, autocommit=True) as conn:
        conn.execute(f"create database {name}".encode())
    asyncio.run(migrate(at_database(embedded_postgres.url, name)))
    return name


@pytest.fixture
def empty_database_url(embedded_postgres: EmbeddedPostgres) -> Iterator[str]:
    with _database(embedded_postgres, "template0") as url:
        yield url


@pytest.fixture
def database_url(embedded_postgres: EmbeddedPostgres, migrated_template: str) -> Iterator[str]:
    with _database(embedded_postgres, migrated_template) as url:
        yield url


@pytest.fixture(scope="module")
def module_database_url(embedded_postgres: EmbeddedPostgres, migrated_template: str) -> Iterator[str]:
    with _database(embedded_postgres, migrated_template) as url:
        yield url


@pytest_asyncio.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    """An open pool of up to 10 connections on a fresh, migrated database."""
    async with open_pool(DatabaseConfig(url=database_url)) as opened:
        yield opened
