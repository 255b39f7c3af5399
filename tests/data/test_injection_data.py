"""Figures and invariants over every public attack and every benign text that looks like one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from router.evaluation.injection import evaluate_injection
from standard.domain.passage import Passage
from standard.domain.text import UntrustedText
from standard.sandbox.canary import leak_in
from standard.sandbox.canonicalise import canonicalise
from standard.sandbox.output import OutputGuard
from standard.sandbox.render import Marker, render_passages, render_question, tag_passages, with_marker
from standard.sandbox.scan import shipped_scanner
from standard.sandbox.urls import url_policy, violations
from tests.security.test_invariants import CANARY, SECRET, check_prompt

if TYPE_CHECKING:
    from standard.sandbox.prompt import PromptText

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.data, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def rows(public_data: Path) -> list[str]:
    texts = []
    for name in ("attacks.jsonl", "benign.jsonl"):
        with (public_data / "injection" / name).open(encoding="utf-8") as lines:
            texts += [json.loads(line)["text"] for line in lines]
    return texts


def test_the_scan_reaches_its_figures(public_data: Path) -> None:
    figures = evaluate_injection(public_data / "injection")
    held_out, kinds = figures["held_out"], figures["kinds"]
    assert isinstance(held_out, dict)
    assert isinstance(kinds, dict)
    assert held_out["overt_recall"] >= 0.60
    assert held_out["obfuscated_recall"] >= 0.70
    assert held_out["benign_flagged"] <= 0.01
    shipped = figures["shipped"]
    assert isinstance(shipped, dict)
    assert shipped["benign_flagged"] <= 0.01
    assert all(kind["quarantined"] <= 0.02 for kind in kinds.values())
    changed, seconds = figures["benign_canonical_changed"], figures["scan_seconds"]
    assert isinstance(changed, float)
    assert isinstance(seconds, dict)
    assert changed <= 0.01
    assert seconds["p50"] <= 0.005
    assert seconds["p99"] <= 0.015


def test_the_figures_in_the_documentation_are_those_that_were_measured(public_data: Path) -> None:
    figures = evaluate_injection(public_data / "injection")
    written = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    for title, name in (("held out", "held_out"), ("all rules", "shipped")):
        found = figures[name]
        assert isinstance(found, dict)
        recalls = [f"{found[key]:.0%}" for key in ("overt_recall", "obfuscated_recall", "plain_recall")]
        assert f"| {title} | {' | '.join(recalls)} | {found['benign_flagged']:.1%} |" in written


def test_no_row_leaves_its_section(rows: list[str]) -> None:
    for number, text in enumerate(rows):
        passage = Passage("d#0", "d", UntrustedText(text[:300]), text[:300], UntrustedText(text), 0, "", text[:300])
        other = Passage("e#0", "e", UntrustedText("Pump"), "wiki/pump", UntrustedText("It is green."), 0, "")

        def build(marker: Marker, passages: tuple[Passage, Passage] = (passage, other)) -> PromptText:
            return render_passages(tag_passages(passages), marker) + render_question(UntrustedText("Why?"), marker)

        prompt = with_marker(build).value
        check_prompt(prompt.replace("><question", ">\n<question"), 2, number)


def test_a_model_that_repeats_any_row_leaks_nothing(rows: list[str]) -> None:
    policy = url_policy(["https://wiki.shop.example/pump"])
    for number, text in enumerate(rows):
        guard = OutputGuard([SECRET], policy)
        half = len(text) // 2
        shown = guard.feed(text[:half]) + guard.feed(f"{text[half:]} {CANARY}") + guard.finish()
        assert guard.verdict.reason == "canary", number
        assert leak_in(shown, SECRET) == "", number
        assert violations(shown, policy) == [], number


def test_both_readings_of_every_row_are_idempotent(rows: list[str]) -> None:
    scanner = shipped_scanner()
    for number, text in enumerate(rows):
        report = scanner.report("", "", text)
        assert "scan-failed" not in report.techniques, number
        assert canonicalise(report.delivered) == report.delivered, number
        assert scanner.report("", "", report.canonical).canonical == report.canonical, number
