"""The Dockerfile: no finding of a linter, no rights at run time, nothing unlocked and no torch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tools import ROOT

DOCKER = ROOT / "deploy" / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="hadolint comes with the development set on Linux alone")
def test_a_linter_finds_nothing(tmp_path: Path) -> None:
    linter = str(Path(sys.executable).parent / "hadolint")
    done = subprocess.run([linter, str(DOCKER / "Dockerfile")], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    (tmp_path / "Dockerfile").write_text("FROM python\nRUN cd /src && pip install numpy\n")
    wrong = subprocess.run([linter, str(tmp_path / "Dockerfile")], capture_output=True, timeout=60, check=False)
    assert wrong.returncode != 0


def test_the_last_stage_runs_without_rights_and_knows_its_health() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert "HEALTHCHECK" in last
    assert 'ENTRYPOINT ["pointsman"]' in last
    assert "RUN deploy" not in last


def test_what_is_copied_is_there_and_not_ignored() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for copied in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        *sources, _target = copied.split()
        for source in sources:
            assert (ROOT / source).exists(), source
            assert source in allowed or any(source.startswith(f"{each}/") for each in allowed), source


def test_everything_installed_is_locked_with_hashes_and_torch_is_not_among_it() -> None:
    for name in ("serve.txt", "build.txt"):
        lock = (ROOT / "requirements" / name).read_text()
        packages = re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE)
        assert packages
        assert "torch" not in packages
        for entry in re.split(r"\n(?=[A-Za-z0-9])", lock.strip()):
            assert "--hash=sha256:" in entry, entry.splitlines()[0]
    install = (DOCKER / "install.sh").read_text()
    commands = [
        line for line in install.splitlines() if re.search(r"\binto |pip .*install", line) and "into()" not in line
    ]
    assert len(commands) >= 3
    assert install.count("--require-hashes") == 2
    assert install.count("--no-index") == 1


def test_scripts_are_plain_shell() -> None:
    for script in (
        DOCKER / "install.sh",
        DOCKER / "steps.sh",
        ROOT / "deploy" / "fetch.sh",
        ROOT / "deploy" / "proxy" / "keys.sh",
    ):
        done = subprocess.run(["sh", "-n", str(script)], capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr
        assert script.stat().st_mode & 0o111
