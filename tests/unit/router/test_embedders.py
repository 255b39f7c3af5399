"""Which embedders a collection may be changed to, and where their keys go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.access.identity import Identity
from router.embedders import configure, own_spec, wanted_spec
from router.settings import load_settings
from standard.corpus.collections import EmbedderSpec, read_spec
from standard.domain.errors import FailedPrecondition, InvalidInput, PermissionDenied

if TYPE_CHECKING:
    from pathlib import Path

    from router.settings import Settings

HOST = "http://models:8000/v1"
ADMIN = Identity(roles=frozenset({"admin"}))
OPERATOR = Identity()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    big = {"model": "openai:big", "base_url": HOST, "api_key": "sesame", "dimensions": 1024}
    return load_settings(data_dir=tmp_path, embedders={"big": big})


@given(
    st.builds(
        EmbedderSpec,
        model=st.text(min_size=1, max_size=40),
        base_url=st.text(max_size=40),
        dimensions=st.none() | st.integers(1, 4000),
        max_tokens=st.none() | st.integers(32, 10_000),
        named=st.booleans(),
    )
)
def test_what_a_generation_keeps_of_its_embedder_is_read_again(spec: EmbedderSpec) -> None:
    assert read_spec(spec.describe()) == spec
    assert read_spec(spec.describe() | {"of another release": 1}) == spec


def test_a_key_goes_to_the_address_of_its_section_alone(settings: Settings) -> None:
    config_of = configure(settings)
    assert config_of(EmbedderSpec("big", named=True)).api_key == "sesame"
    assert config_of(EmbedderSpec("openai:other", HOST)).api_key == "sesame"
    for elsewhere in ("http://models:8000/v1/", "http://models.evil:8000/v1", "", "http://models:8001/v1"):
        assert config_of(EmbedderSpec("openai:other", elsewhere)).api_key == ""
    assert "sesame" not in str(EmbedderSpec("big", named=True).describe())
    with pytest.raises(FailedPrecondition, match=r"no section \[embedders\.gone\]"):
        config_of(EmbedderSpec("gone", named=True))


def test_an_administrator_chooses_among_what_the_settings_name(settings: Settings) -> None:
    assert wanted_spec(settings, ADMIN, "", "", 0, 0) == own_spec(settings)
    assert wanted_spec(settings, ADMIN, "builtin", "", 0, 0) == EmbedderSpec("builtin")
    assert wanted_spec(settings, ADMIN, "big", "", 0, 0) == EmbedderSpec("big", named=True)
    for model in ("openai:any", "/etc", "some/model"):
        with pytest.raises(PermissionDenied):
            wanted_spec(settings, ADMIN, model, HOST if model.startswith("openai:") else "", 0, 0)


def test_an_operator_names_any(settings: Settings) -> None:
    assert wanted_spec(settings, OPERATOR, "openai:any", HOST, 256, 0) == EmbedderSpec("openai:any", HOST, 256)
    assert wanted_spec(settings, OPERATOR, "some/model", "", 0, 0) == EmbedderSpec("some/model")


@pytest.mark.parametrize(
    ("model", "base_url", "dimensions", "max_tokens"),
    [
        ("openai:any", "", 0, 0),
        ("openai:any", "gopher://models", 0, 0),
        ("openai:any", "http://me:secret@models/v1", 0, 0),
        ("openai:any", HOST, -1, 0),
        ("openai:any", HOST, 4001, 0),
        ("openai:any", HOST, 0, 31),
        ("some/model", HOST, 0, 0),
        ("big", HOST, 0, 0),
        ("builtin", "", 384, 0),
        ("", "", 0, 512),
        ("x" * 513, "", 0, 0),
        ("a\x1bb", "", 0, 0),
    ],
)
def test_what_cannot_be_an_embedder_is_refused(
    settings: Settings, model: str, base_url: str, dimensions: int, max_tokens: int
) -> None:
    with pytest.raises(InvalidInput) as refused:
        wanted_spec(settings, OPERATOR, model, base_url, dimensions, max_tokens)
    assert "secret" not in refused.value.message
