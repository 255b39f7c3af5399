"""What is remembered of prompts: those in use stay, however many collections have a style of their own."""

from __future__ import annotations

from typing import cast

from standard.domain.question import AnswerStyle
from standard.llm.protocol import Llm
from standard.prompts import ANSWER_FROM_PASSAGES, answer_task
from standard.sandbox.guarded_llm import MAX_PROMPTS, GuardedLlm


def test_a_prompt_that_is_in_use_is_worked_out_once() -> None:
    guarded = GuardedLlm(cast("Llm", None))
    first = guarded.secret(ANSWER_FROM_PASSAGES)
    for number in range(2 * MAX_PROMPTS):
        guarded.secret(answer_task(style=AnswerStyle(f"Sign as clerk {number}.", "")))
        assert guarded.secret(ANSWER_FROM_PASSAGES) is first
