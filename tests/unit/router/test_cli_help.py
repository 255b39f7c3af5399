"""What `--help` shows is what was written: the names of sections are not taken for markup."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from router.cli.main import build_app


@pytest.mark.parametrize("section", ["[embedders.NAME]", "[embedding]"])
def test_help_names_sections_of_the_settings_in_their_brackets(section: str) -> None:
    shown = CliRunner().invoke(build_app(), ["reembed", "start", "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert section in re.sub(r"\s+", " ", shown.output)
