"""What the longest question costs the event loop: every function of text that it goes through, together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from agentic.controllers.split import split_question
from agentic.coverage import content_terms
from agentic.guards import unknown_references
from agentic.same_need.comparison import compare
from agentic.same_need.decision import normalise
from classifier.evidence.pieces import pieces_of, words_of
from classifier.followup import leans, standalone
from classifier.language import reads_as_english
from classifier.neutral import neutral
from classifier.surface import surface_features
from router.grpc.validate import question_text
from router.settings import LimitSettings
from standard.extractive.answer_type import expected_type
from standard.extractive.features import wanted_by
from standard.retrieval.names import strong_names, title_spans
from standard.retrieval.reader import split_keywords
from standard.sentences import sentence_spans
from standard.words import content_stems
from tests.support.adversarial import adversarial, grows_beyond_linear

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST = LimitSettings().question_chars
MOST_SECONDS = 0.1
"""CPU seconds of the loop that any question may cost in all of these together."""
FLOOR = 0.02

READERS: dict[str, Callable[[str], object]] = {
    "validate": lambda text: question_text(f"x {text}"[:LONGEST], "question", LimitSettings()),
    "neutral": neutral,
    "language": reads_as_english,
    "leans": leans,
    "standalone": lambda text: standalone("and then?", (text, text)),
    "surface": surface_features,
    "pieces": pieces_of,
    "words": words_of,
    "title spans": lambda text: title_spans(text, any_case=True),
    "strong names": strong_names,
    "split": split_question,
    "keywords": split_keywords,
    "content terms": content_terms,
    "content stems": content_stems,
    "same need": lambda text: compare(text, f"{text} x"),
    "same words": normalise,
    "references": unknown_references.references,
    "wanted": lambda text: wanted_by(text, {}),
    "answer type": expected_type,
    "sentences": sentence_spans,
}
"""What reads a question's text between the edge and the answer, on the event loop."""


@pytest.mark.parametrize("reader", READERS)
def test_a_question_is_read_in_linear_time(reader: str) -> None:
    read = READERS[reader]
    read("a first question, which loads what is loaded once")
    pairs = zip(adversarial(LONGEST // 4), adversarial(LONGEST), strict=True)
    assert not [name for (name, short), (_, long) in pairs if grows_beyond_linear(read, short, long, FLOOR)]


def test_the_longest_question_of_any_kind_costs_the_loop_less_than_a_tenth_of_a_second_in_all() -> None:
    for read in READERS.values():
        read("a first question, which loads what is loaded once")
    slow = {}
    for name, text in adversarial(LONGEST):
        took = _seconds(text)
        if took > MOST_SECONDS:  # what else the machine does can only add
            took = min(took, _seconds(text), _seconds(text))
        if took > MOST_SECONDS:
            slow[name] = took
    assert not slow


def _seconds(text: str) -> float:
    begun = time.process_time()
    for read in READERS.values():
        read(text)
    return time.process_time() - begun
