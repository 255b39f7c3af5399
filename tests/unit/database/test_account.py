"""Which account runs the embedded server, and what it is allowed to keep."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from standard.database import account
from standard.database.account import CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, Account, NoAccount, choose_account


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "postgres").touch(0o755)
    (folder / "postgres").chmod(0o755)
    return folder


def as_root(monkeypatch: pytest.MonkeyPatch, *capabilities: int, accounts: tuple[str, ...] = ("nobody",)) -> None:
    def known(name: str) -> pwd.struct_passwd:
        if name not in accounts:
            raise KeyError(name)
        return pwd.struct_passwd((name, "x", 65534, 65533, "", "/", "/"))

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", known)
    monkeypatch.setattr(account, "effective_capabilities", lambda: sum(1 << number for number in capabilities))


def reachable(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    monkeypatch.setattr(account, "_is_reachable", lambda *_: answer)


def test_an_ordinary_user_runs_it_himself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, programs: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert choose_account(tmp_path / "cluster", programs) is None


def test_root_hands_it_to_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, programs: Path) -> None:
    as_root(monkeypatch)
    reachable(monkeypatch, answer=True)
    assert choose_account(tmp_path / "cluster", programs) == Account(65534, 65533)


@pytest.mark.parametrize(
    ("held", "kept"),
    [
        ((CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH), CAP_DAC_READ_SEARCH),
        ((CAP_DAC_OVERRIDE,), CAP_DAC_OVERRIDE),
    ],
)
def test_behind_a_closed_folder_it_keeps_the_mildest_capability_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, programs: Path, held: tuple[int, ...], kept: int
) -> None:
    as_root(monkeypatch, *held)
    reachable(monkeypatch, answer=False)
    assert choose_account(tmp_path / "cluster", programs) == Account(65534, 65533, kept)


def test_behind_a_closed_folder_without_capabilities_the_way_out_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, programs: Path
) -> None:
    as_root(monkeypatch)
    reachable(monkeypatch, answer=False)
    with pytest.raises(NoAccount, match=r"nobody cannot reach .*POINTSMAN_DATA_DIR"):
        choose_account(tmp_path / "cluster", programs)


def test_programs_that_others_may_not_run_need_the_stronger_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, programs: Path
) -> None:
    as_root(monkeypatch, CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE)
    reachable(monkeypatch, answer=True)
    (programs / "postgres").chmod(0o700)
    assert choose_account(tmp_path / "cluster", programs) == Account(65534, 65533, CAP_DAC_OVERRIDE)


def test_a_system_without_any_account_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, programs: Path) -> None:
    as_root(monkeypatch, accounts=())
    with pytest.raises(NoAccount, match="ordinary user"):
        choose_account(tmp_path / "cluster", programs)
