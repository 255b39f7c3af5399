"""Chunking: every word of a document is in a chunk, every chunk in the window, whatever the text."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standard.corpus.chunking import Chunking, chunk_document, read_chunking
from standard.domain.errors import FailedPrecondition, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from standard.corpus.chunking import Chunk, TokenCounter


def words(texts: Sequence[str]) -> list[int]:
    """Words and marks, two special tokens: as additive as a real tokenizer."""
    return [len(re.findall(r"\w+|[^\w\s]", text)) + 2 for text in texts]


def characters(texts: Sequence[str]) -> list[int]:
    return [len(text) + 2 for text in texts]


def growing(texts: Sequence[str]) -> list[int]:
    """The whole costs more than its parts: no estimate from parts holds."""
    return [int(len(text) ** 1.3) + 1 for text in texts]


def few(texts: Sequence[str]) -> list[int]:
    """Long runs without spaces are one unknown token."""
    return [len(text.split()) + 2 for text in texts]


counters = st.sampled_from([words, characters, growing, few])
pieces = st.one_of(
    st.text(max_size=200),
    st.text(alphabet="ab. \n#-|*!?。、界\u0301\u200d", max_size=400),
    st.sampled_from(
        [
            "# Heading\n\n",
            "Title\n=====\n",
            "| a | b |\n| --- | --- |\n| 1 | 2 |\n",
            "```\ncode here\n\nmore\n```\n",
            "- one\n- two\n\n",
            "Dr. Smith went home. He slept.\n\n",
            "word " * 300,
            "x" * 3000,
            "漢字かな" * 200,
            "ภาษาไทย" * 100,
            "https://example.org/" + "a" * 500 + " ",
            "\n\n\n",
            "-" * 500 + "\n",
        ]
    ),
)
texts = st.lists(pieces, max_size=8).map("".join)


def checked(title: str, text: str, count: TokenCounter, window: int, sizes: Chunking) -> list[Chunk]:
    chunks = chunk_document(title, text, count_tokens=count, max_tokens=window, chunking=sizes)
    end = 0
    for position, chunk in enumerate(chunks):
        assert chunk.position == position
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.start < chunk.end
        assert not any(map(str.isalnum, text[end : chunk.start])), "what lies between two chunks says nothing"
        assert chunk.start >= end, "chunks do not overlap"
        assert chunk.section_start <= chunk.start < chunk.end <= chunk.section_end
        assert chunk.token_count == count([chunk.embedded])[0] <= window
        assert chunk.embedded.startswith(chunk.context)
        assert len(chunk.text) <= sizes.maximum_characters + 64
        assert len(chunk.sentences) == len(chunk.embedded_sentences)
        for start, stop in chunk.sentences:
            assert 0 <= start < stop <= len(chunk.text)
        for start, stop in chunk.embedded_sentences:
            assert len(chunk.context) <= start < stop <= len(chunk.embedded)
        end = chunk.end
    assert not any(map(str.isalnum, text[end:])), "what follows the last chunk says nothing"
    return chunks


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=300), texts, counters, st.integers(32, 256), st.integers(1, 300), st.integers(64, 2000))
def test_any_text_is_covered_in_order_and_fits(
    title: str, text: str, count: TokenCounter, window: int, target: int, characters_allowed: int
) -> None:
    sizes = Chunking(target_tokens=target, maximum_characters=characters_allowed)
    checked(title, text, count, window, sizes)


@settings(max_examples=200, deadline=None)
@given(texts)
def test_sentences_hold_every_word_of_a_chunk(text: str) -> None:
    for chunk in checked("", text, words, 256, Chunking()):
        covered = "".join(chunk.text[start:end] for start, end in chunk.sentences)
        spoken = [character for character in chunk.text if character.isalnum()]
        # addresses of links and bare marks are said by no sentence; nothing else is left out
        if "](" not in chunk.text:
            assert [character for character in covered if character.isalnum()] == spoken


def test_rules_and_dots_take_no_chunk_unless_there_is_nothing_else() -> None:
    cells = "word " * 300
    chunks = chunk_document("", f"{cells}\n\n---\n\n{cells}", count_tokens=words, max_tokens=64)
    assert all(any(map(str.isalnum, chunk.text)) for chunk in chunks)
    assert [chunk.text for chunk in chunk_document("", "---", count_tokens=words, max_tokens=64)] == ["---"]


def test_a_blank_text_has_no_chunks() -> None:
    assert chunk_document("Title", " \n\t\n ", count_tokens=words, max_tokens=256) == []


def test_a_short_document_is_one_chunk_under_its_title() -> None:
    [chunk] = chunk_document("Ferry", "It sails at noon. Bring a coat.", count_tokens=words, max_tokens=256)
    assert chunk.embedded == "Ferry\nIt sails at noon.\nBring a coat."
    assert [chunk.text[a:b] for a, b in chunk.sentences] == ["It sails at noon.", "Bring a coat."]
    assert [chunk.embedded[a:b] for a, b in chunk.embedded_sentences] == ["It sails at noon.", "Bring a coat."]


def test_chunks_end_where_sentences_end() -> None:
    sentences = [f"Sentence number {n} says that {n} follows from something." for n in range(120)]
    chunks = chunk_document("", " ".join(sentences), count_tokens=words, max_tokens=256)
    assert len(chunks) > 4
    assert all(chunk.text.startswith("Sentence number") and chunk.text.endswith("something.") for chunk in chunks)
    sizes = [chunk.token_count for chunk in chunks]
    assert max(sizes) - min(sizes) < 30, "sizes are even; no sentence is left over alone"


def test_a_heading_stays_with_what_follows_it() -> None:
    body = "The plant runs on steam from the northern boiler house. " * 14
    text = "\n\n".join(f"## Part {n}\n\n{body}" for n in range(6))
    chunks = chunk_document("Manual", text, count_tokens=words, max_tokens=256)
    for chunk in chunks:
        assert not chunk.text.rstrip().splitlines()[-1].startswith("##")
    assert {chunk.section_heading for chunk in chunks} == {f"Part {n}" for n in range(6)}


def test_the_context_names_title_and_headings_that_the_chunk_does_not_hold() -> None:
    text = "# Handbook\n\n## Leave\n\n" + "Ask your manager two weeks before. " * 80
    chunks = chunk_document("Handbook 2026", text, count_tokens=words, max_tokens=256)
    assert chunks[0].context == "Handbook 2026\n"
    assert chunks[1].context == "Handbook 2026 > Handbook > Leave\n"
    assert chunks[1].section_heading == "Handbook > Leave"


def test_an_endless_title_is_shortened_in_the_context_alone() -> None:
    title = "annual report " * 500
    [chunk] = chunk_document(title, "Profit rose.", count_tokens=words, max_tokens=256)
    assert chunk.context.startswith("annual report")
    assert words([chunk.context])[0] <= 42


def test_an_overlong_sentence_is_split_at_clauses() -> None:
    text = "; ".join(f"the board of unit {n} approves the budget of that unit" for n in range(60)) + "."
    chunks = checked("", text, words, 256, Chunking())
    assert len(chunks) >= 4
    assert all(chunk.text.endswith((";", ".")) for chunk in chunks)


@pytest.mark.parametrize(
    "script", ["漢字とかなの文章です", "ข้อความภาษาไทยยาวมาก", "абвгдежзийклмнопрст", "e\u0301a\u0308o\u0302"]
)
def test_a_text_without_spaces_is_split_between_characters(script: str) -> None:
    text = script * 400
    chunks = checked("", text, characters, 256, Chunking())
    assert "".join(chunk.text for chunk in chunks) == text
    assert all(re.match(r"[\u0300-\u036f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]", chunk.text) is None for chunk in chunks)


def test_japanese_sentences_end_without_spaces() -> None:
    [chunk] = chunk_document(
        "", "会議は三時です。資料を読んでください！質問は？", count_tokens=characters, max_tokens=256
    )
    assert [chunk.text[a:b] for a, b in chunk.sentences] == ["会議は三時です。", "資料を読んでください！", "質問は？"]


def test_a_rule_of_dashes_takes_no_room_in_what_is_embedded() -> None:
    text = "| Name | Watts |\n|" + "-" * 200 + "|" + "-" * 200 + "|\n| Charger | 65 |"
    [chunk] = chunk_document("", text, count_tokens=words, max_tokens=256)
    assert chunk.text == text
    assert chunk.embedded == "Name | Watts\nCharger | 65"


def test_parent_sections_have_about_a_thousand_tokens_and_whole_chunks() -> None:
    body = "The plant runs on steam from the northern boiler house. " * 30
    text = "\n\n".join(f"## Part {n}\n\n{body}" for n in range(12))
    chunks = chunk_document("Manual", text, count_tokens=words, max_tokens=256)
    sections = sorted({(chunk.section_start, chunk.section_end) for chunk in chunks})
    assert all(before[1] <= after[0] for before, after in pairwise(sections))
    sizes = words([text[start:end] for start, end in sections])
    assert all(500 <= size <= 1010 for size in sizes[:-1])


@pytest.mark.parametrize(
    "unit", ["Some words make up a sentence. ", "a", "字", "word ", "\n", "# h\n", "|", "a.", "x;", "e\u0301", "- x\n"]
)
def test_time_grows_with_the_length_of_the_text(unit: str) -> None:
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        best = 9.0
        for _ in range(3):
            began = time.process_time()
            chunk_document("t", text, count_tokens=words, max_tokens=256)
            best = min(best, time.process_time() - began)
        return best

    # sixteen times the text in well under sixteen times sixteen times the time
    assert seconds(320_000) < 60 * max(seconds(20_000), 0.002)


def test_a_window_too_small_for_a_character_is_refused() -> None:
    with pytest.raises(InvalidInput):
        chunk_document("", "a", count_tokens=lambda texts: [1000 for _ in texts], max_tokens=64)
    with pytest.raises(InvalidInput):
        chunk_document("", "a", count_tokens=words, max_tokens=8)


def test_the_description_of_sizes_can_be_read_back() -> None:
    sizes = Chunking(target_tokens=123)
    assert read_chunking(sizes.describe()) == sizes
    with pytest.raises(FailedPrecondition):
        read_chunking('{"format": "paragraphs-7"}')
