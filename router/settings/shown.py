"""Show the settings: what is in force with secrets masked, and a commented file of the defaults."""

from __future__ import annotations

from typing import Any

from router.settings.load import Settings
from router.settings.sections import Section
from router.settings.storage import TableSettings

_EXAMPLE_EMBEDDER = (
    "# [embedders.NAME]  # another embedder, keys as in [embedding]; see docs/corpus.md",
    '# model = "openai:NAME"',
)


def masked(settings: Settings) -> dict[str, Any]:
    """The settings as plain JSON values, secrets masked."""
    return settings.model_dump(mode="json")


def example_toml() -> str:
    """A commented settings file with every key and its default."""
    lines = ["# pointsman.toml: every key with its default. Environment POINTSMAN_<SECTION>__<KEY> wins over it.", ""]
    for name, field in Settings.model_fields.items():
        if name == "config":
            continue
        if name == "embedders":
            lines += ["", *_EXAMPLE_EMBEDDER]
            continue
        if name == "tables":
            lines += ["", *_example_table()]
            continue
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            lines += ["", f"[{name}]"]
            for key, inner in section.model_fields.items():
                default = inner.get_default(call_default_factory=True)
                lines += [f"# {inner.description}", f"{'# ' if default is None else ''}{key} = {_toml(default)}"]
        else:
            lines += [
                f"# {field.description}",
                f"# {name} = {_toml(str(field.get_default(call_default_factory=True)))}",
            ]
    return "\n".join(lines) + "\n"


def _example_table() -> list[str]:
    """A section that is commented out as a whole: the keys of a table, each once."""
    lines = ["# [tables.NAME]  # a table that somebody else fills, as the collection NAME; see docs/tables.md"]
    for key, field in TableSettings.model_fields.items():
        lines += [f"# # {field.description}", f"# {key} = {_toml(field.get_default(call_default_factory=True))}"]
    return lines


def _toml(value: object) -> str:
    if value is None:
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
