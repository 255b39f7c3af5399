"""Settings: one place, every problem named."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from router.settings import BadSettings, example_toml, load_settings, masked

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("POINTSMAN_CONFIG", "POINTSMAN_LLM__BASE_URL", "POINTSMAN_DATABASE__URL"):
        monkeypatch.delenv(name, raising=False)


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pointsman.toml").write_text("[server]\nport = 1111\nhost = '::1'\n")
    monkeypatch.setenv("POINTSMAN_SERVER__PORT", "2222")
    settings = load_settings()
    assert (settings.server.port, settings.server.host) == (2222, "::1")


def test_a_bad_value_names_the_key_the_problem_and_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_SERVER__PORT", "99999")
    monkeypatch.setenv("POINTSMAN_ROUTING__SAFE_ROUTE", "scenic")
    with pytest.raises(BadSettings) as caught:
        load_settings()
    text = str(caught.value)
    assert "server.port (POINTSMAN_SERVER__PORT)" in text
    assert "65535" in text
    assert "'standard' or 'agentic'" in text


@pytest.mark.parametrize(
    ("variable", "key", "shape"),
    [
        ("POINTSMAN_HTTP__CONTRACTS", "http.contracts", '["a", "b"]'),
        ("POINTSMAN_LLM__MODELS", "llm.models", '{"a": "b"}'),
        ("POINTSMAN_LIMITS__TENANTS", "limits.tenants", '{"a": "b"}'),
        ("POINTSMAN_TRACES__HEADERS", "traces.headers", '{"a": "b"}'),
    ],
)
def test_a_list_or_table_of_the_environment_that_is_no_json_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, key: str, shape: str
) -> None:
    monkeypatch.setenv(variable, "langserve")
    with pytest.raises(BadSettings) as problem:
        load_settings()
    assert problem.value.problems == [f"{key} ({variable}): must be JSON, such as {shape}"]


def test_a_misspelt_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pointsman.toml").write_text("[server]\nprot = 1\n")
    with pytest.raises(BadSettings, match=r"server\.prot"):
        load_settings()


def test_a_named_file_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_CONFIG", "nowhere.toml")
    with pytest.raises(BadSettings, match="POINTSMAN_CONFIG"):
        load_settings()


def test_secrets_are_masked_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_LLM__API_KEY", "sesame")
    monkeypatch.setenv("POINTSMAN_DATABASE__URL", "postgresql://me:sesame@localhost/x")
    settings = load_settings()
    assert "sesame" not in str(masked(settings))
    assert "sesame" not in repr(settings)
    monkeypatch.setenv("POINTSMAN_DATABASE__POOL_MAX", "none")
    with pytest.raises(BadSettings) as caught:
        load_settings()
    assert "sesame" not in str(caught.value)


def test_a_secret_under_a_misspelt_key_or_in_a_broken_section_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POINTSMAN_LLM__APIKEY", "sesame")
    with pytest.raises(BadSettings, match=r"llm\.apikey") as caught:
        load_settings()
    assert "sesame" not in str(caught.value)
    monkeypatch.delenv("POINTSMAN_LLM__APIKEY")
    (tmp_path / "pointsman.toml").write_text("llm = [{api_key = 'sesame'}]\n")
    with pytest.raises(BadSettings, match="llm") as caught:
        load_settings()
    assert "sesame" not in str(caught.value)


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "pointsman.toml").write_text("[llm\n")
    with pytest.raises(BadSettings, match=r"pointsman\.toml: .*line 1"):
        load_settings()


def test_the_example_file_is_complete_and_loads(tmp_path: Path) -> None:
    text = example_toml()
    parsed = tomllib.loads(text)
    (tmp_path / "pointsman.toml").write_text(text)
    settings = load_settings()
    for section, keys in parsed.items():
        for key in keys:
            assert hasattr(getattr(settings, section), key)
    assert settings.server == load_settings().server
