"""`pointsman keys`: API keys, made, listed and revoked in the database itself; a running server follows in seconds."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from router.cli.options import Json
from router.cli.output import diagnostics, print_json, results
from router.settings import load_settings
from standard.domain.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.access.keys import StoredKey
    from router.settings import Settings
    from standard.database.pool import Pool


def register(app: typer.Typer) -> None:
    """Add the commands."""
    keys = typer.Typer(name="keys", help="API keys of tenants.", no_args_is_help=True)
    keys.command("create")(create)
    keys.command("list")(list_)
    keys.command("revoke")(revoke)
    app.add_typer(keys)


@asynccontextmanager
async def database(settings: Settings) -> AsyncIterator[Pool]:
    """Yield an open pool on the migrated database of the settings."""
    from router.configs import database_config
    from standard.database.migrate import migrate
    from standard.database.pool import database_url, open_pool

    config = database_config(settings)
    async with database_url(config) as url:
        await migrate(url, allow_old_pgvector=settings.database.accept_old_pgvector)
        async with open_pool(config) as pool:
            yield pool


def create(
    tenant: Annotated[str, typer.Option("--tenant", help="Whose key it is.")],
    role: Annotated[str, typer.Option("--role", help="user, admin (of the tenant) or operator (of all).")] = "user",
    collections: Annotated[str, typer.Option("--collections", help="Names, comma-separated; default: all.")] = "",
    groups: Annotated[str, typer.Option("--groups", help="Access groups on documents, comma-separated.")] = "",
    expires: Annotated[str, typer.Option("--expires", help="90d, 12h or 30m from now; default: never.")] = "",
    note: Annotated[str, typer.Option("--note", help="What it is for.")] = "",
    json_output: Json = False,
) -> int:
    """Make a key and show it, this once."""
    from router.access.keys import create_key

    async def run() -> tuple[str, StoredKey]:
        async with database(load_settings()) as pool:
            return await create_key(
                pool,
                tenant,
                role=role,
                collections=names(collections),
                groups=names(groups),
                expires_in=duration(expires),
                note=note,
            )

    token, stored = asyncio.run(run())
    if json_output:
        print_json({"key": token} | key_view(stored))
        return 0
    results().print(escape(token), soft_wrap=True)
    diagnostics().print(escape(f"the key {stored.key_id} of tenant {stored.tenant}: keep it, it is not shown again"))
    if load_settings().auth.mode != "keys":
        diagnostics().print('[yellow]no key is asked for: set auth.mode = "keys" (POINTSMAN_AUTH__MODE)[/yellow]')
    return 0


def list_(
    tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant's; default: all.")] = "",
    json_output: Json = False,
) -> int:
    """List keys, without what would let one use them."""
    from router.access.keys import list_keys

    async def run() -> list[StoredKey]:
        async with database(load_settings()) as pool:
            return await list_keys(pool, tenant)

    views = [key_view(each) for each in asyncio.run(run())]
    if json_output:
        for view in views:
            print_json(view)
        return 0
    table = Table("id", "tenant", "role", "state", "collections", "groups", "expires", "note")
    for view in views:
        seen = "all" if view["collections"] is None else ", ".join(view["collections"])
        cells = (view["id"], view["tenant"], view["role"], view["state"], seen, ", ".join(view["groups"]))
        table.add_row(*(escape(str(cell)) for cell in (*cells, view["expires_at"] or "never", view["note"])))
    results().print(table)
    return 0


def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id.")],
    json_output: Json = False,
) -> int:
    """Revoke a key; servers refuse it within seconds."""
    from router.access.keys import revoke_key

    async def run() -> StoredKey:
        async with database(load_settings()) as pool:
            return await revoke_key(pool, key_id)

    stored = asyncio.run(run())
    print_json(key_view(stored)) if json_output else results().print(escape(f"the key {stored.key_id} is revoked"))
    return 0


def names(given: str) -> list[str]:
    """The names of a comma-separated list."""
    return [name.strip() for name in given.split(",") if name.strip()]


def duration(given: str) -> dt.timedelta | None:
    """How long 90d, 12h or 30m is; None for "". Raises InvalidInput."""
    if not given:
        return None
    found = re.fullmatch(r"([0-9]{1,6})([dhm])", given.strip())
    if found is None:
        raise InvalidInput("expires", f"{given[:40]!r} is no duration; write 90d, 12h or 30m")
    return dt.timedelta(**{{"d": "days", "h": "hours", "m": "minutes"}[found[2]]: int(found[1])})


def key_view(key: StoredKey) -> dict[str, Any]:
    """What is known of a key as JSON values; never its digest."""
    return {
        "id": key.key_id,
        "tenant": key.tenant,
        "role": key.role,
        "state": key.state(dt.datetime.now(dt.UTC)),
        "collections": None if key.collections is None else sorted(key.collections),
        "groups": sorted(key.groups),
        "note": key.note,
        "created_at": key.created_at.isoformat(),
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
        "revoked_at": key.revoked_at.isoformat() if key.revoked_at else None,
    }
