"""Read the settings: arguments over the environment over the file over the defaults.

A bad value stops the start with the key, the problem and what is allowed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, get_origin

import platformdirs
from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from router.settings.answering import AgenticSettings, RetrievalSettings, RoutingSettings, SandboxSettings
from router.settings.models import EmbeddingSettings, LlmSettings, UpstreamSettings
from router.settings.sections import Section
from router.settings.server import AuthSettings, HttpSettings, LimitSettings, ServerSettings, TlsSettings
from router.settings.storage import DatabaseSettings, JournalSettings, TableSettings
from router.settings.watching import CanarySettings, LogSettings, TraceSettings

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"


class Settings(BaseSettings):
    """All of it. `data_dir` holds the embedded database, the lock and the caches."""

    model_config = SettingsConfigDict(
        env_prefix="POINTSMAN_", env_nested_delimiter="__", extra="forbid", frozen=True, env_file=None
    )

    data_dir: Path = Field(
        default_factory=lambda: Path(platformdirs.user_data_dir("pointsman", appauthor=False)),
        description="Where everything that is kept lies: POINTSMAN_DATA_DIR.",
    )
    config: Path | None = Field(None, description="The settings file in use: POINTSMAN_CONFIG.")
    server: ServerSettings = ServerSettings.model_construct()
    http: HttpSettings = HttpSettings.model_construct()
    tls: TlsSettings = TlsSettings.model_construct()
    auth: AuthSettings = AuthSettings.model_construct()
    upstream: UpstreamSettings = UpstreamSettings.model_construct()
    database: DatabaseSettings = DatabaseSettings.model_construct()
    embedding: EmbeddingSettings = EmbeddingSettings.model_construct()
    embedders: dict[Annotated[str, Field(pattern=_NAME)], EmbeddingSettings] = Field(
        default_factory=dict, description="Other embedders, for collections that are changed to them."
    )
    llm: LlmSettings = LlmSettings.model_construct()
    routing: RoutingSettings = RoutingSettings.model_construct()
    retrieval: RetrievalSettings = RetrievalSettings.model_construct()
    agentic: AgenticSettings = AgenticSettings.model_construct()
    sandbox: SandboxSettings = SandboxSettings.model_construct()
    tables: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")], TableSettings] = Field(
        default_factory=dict, description="Tables of your own."
    )
    journal: JournalSettings = JournalSettings.model_construct()
    limits: LimitSettings = LimitSettings.model_construct()
    canary: CanarySettings = CanarySettings.model_construct()
    log: LogSettings = LogSettings.model_construct()
    traces: TraceSettings = TraceSettings.model_construct()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is the base class's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments of the command line, then the environment, then the file."""
        sources: tuple[PydanticBaseSettingsSource, ...] = (init_settings, env_settings)
        path = config_path()
        return (*sources, TomlConfigSettingsSource(settings_cls, toml_file=path)) if path else sources


class BadSettings(Exception):
    """A setting is wrong; `problems` holds one line each: key, problem, what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def config_path() -> Path | None:
    """The settings file in force: POINTSMAN_CONFIG, else ./pointsman.toml where it exists."""
    named = os.environ.get("POINTSMAN_CONFIG", "")
    if named:
        path = Path(named)
        if not path.is_file():
            raise BadSettings([f"POINTSMAN_CONFIG: no file {path}"])
        return path
    path = Path("pointsman.toml")
    return path if path.is_file() else None


def load_settings(**overrides: Any) -> Settings:  # noqa: ANN401 - values are validated by the model
    """Read and check the settings; `overrides` are sections or keys that win over everything.

    Raises BadSettings with every problem found.
    """
    unknown = [
        f"{name}: there is no section [{section}]; there are {', '.join(_sections())}"
        for name in sorted(os.environ)
        if (section := _section_of(name)) and section not in _sections()
    ]
    if unknown:
        raise BadSettings(unknown)
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise BadSettings([_problem(dict(item)) for item in error.errors()]) from None
    except (SettingsError, ValueError) as error:
        raise BadSettings(_unreadable_values() or [f"{config_path() or 'settings'}: {error}"]) from None


def _unreadable_values() -> list[str]:
    """What is wrong with values of the environment that stand for lists and tables and are no JSON."""
    problems = []
    for variable, value in sorted(os.environ.items()):
        section = Settings.model_fields.get(_section_of(variable))
        key = variable.partition("__")[2].lower()
        if section is None or not (isinstance(section.annotation, type) and issubclass(section.annotation, Section)):
            continue
        field = section.annotation.model_fields.get(key)
        kind = None if field is None else get_origin(field.annotation)
        if kind in {tuple, dict}:
            try:
                json.loads(value)
            except ValueError:
                shape = '["a", "b"]' if kind is tuple else '{"a": "b"}'
                problems.append(f"{_section_of(variable)}.{key} ({variable}): must be JSON, such as {shape}")
    return problems


def _section_of(variable: str) -> str:
    """The section that POINTSMAN_<SECTION>__<KEY> names, "" for another variable."""
    section, delimiter, _ = variable.removeprefix("POINTSMAN_").partition("__")
    return section.lower() if delimiter and variable.startswith("POINTSMAN_") else ""


def _sections() -> list[str]:
    return [name for name in Settings.model_fields if name not in {"data_dir", "config"}]


def _problem(item: dict[str, Any]) -> str:
    path = [str(part) for part in item["loc"]]
    key = ".".join(path)
    variable = "POINTSMAN_" + "__".join(part.upper() for part in path)
    given = item.get("input")
    # A misspelt key may be that of a secret, and a whole section may hold one: neither is shown.
    secret = item["type"] == "extra_forbidden" or {"api_key", "url", "redis_url", "headers"} & {*path[-2:]}
    plain = isinstance(given, str | int | float | bool) and not secret
    message = item["msg"]
    if item["type"] == "extra_forbidden" and len(path) == 2:
        section = Settings.model_fields[path[0]].annotation
        if isinstance(section, type) and issubclass(section, Section):
            message = f"there is no such key; [{path[0]}] has {', '.join(section.model_fields)}"
    return f"{key} ({variable}): {message}" + (f"; given: {given!r:.80}" if plain else "")
