"""The scanner reads what a model would: hidden, disguised and encoded text spelled out, and nothing else changed."""

from __future__ import annotations

import base64
import random
import time
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from standard.sandbox.canonicalise import canonicalise
from standard.sandbox.encodings import DEPTH_LIMIT, NestedTooDeep, find_encoded, spell_out
from standard.sandbox.hidden import invisible_messages, unseen_text
from standard.sandbox.lexicon import load_lexicon
from standard.sandbox.reading import Reading, read
from tests.security.attacks import CARRIERS, DISGUISED, ENCODED, INVISIBLE, PLAIN_ENGLISH

VOCABULARY = load_lexicon().vocabulary
WAYS = {**INVISIBLE, **DISGUISED, **ENCODED}


def reading(text: str) -> Reading:
    return read(text, VOCABULARY)


def bare(text: str) -> str:
    """Letters and digits alone, without marks: what a decoding must bring back."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(sign for sign in plain if sign.isalnum())


@pytest.mark.parametrize("way", WAYS)
def test_every_encoding_is_spelled_out_in_its_place(way: str) -> None:
    found = 0
    for order in PLAIN_ENGLISH:
        text = CARRIERS["paragraph"](WAYS[way](order), random.Random(7))
        said = bare(order)
        found += (said if way not in {"morse", "leet"} else said[:18]) in bare(reading(text).canonical)
    assert found == len(PLAIN_ENGLISH)


@pytest.mark.parametrize("way", INVISIBLE)
def test_what_is_invisible_is_read_by_the_scanner_and_gone_from_the_prompt(way: str) -> None:
    order = PLAIN_ENGLISH[0]
    found = reading(f"The pump is green. {WAYS[way](order)}")
    assert order in found.canonical
    assert found.delivered.strip(" 📎") == "The pump is green."
    assert [said for _, said in found.revealed] == [order]


WHOLE = {
    "joined emoji": "The crew 👩🏽‍🚒👨‍👩‍👧‍👦 waved a 🏳️‍🌈 and a 🏴󠁧󠁢󠁳󠁣󠁴󠁿 flag. ❤️ 1️⃣",
    "Persian": "می‌خواهم کتاب‌ها را پس بدهم. لطفاً فرم را پر کنید.",
    "Arabic": "مرحبا بكم في المكتبة، الساعة ٨:٣٠ صباحًا.",
    "Hebrew": "שלום, הספרייה פתוחה מיום ראשון עד יום חמישי.",
    "Hindi": "क्‍षमा करें, पुस्तकालय सोमवार को बंद रहता है।",
    "Tamil and Bengali": "வணக்கம், নমস্কার, ನಮಸ್ಕಾರ",
    "Vietnamese": "Thư viện mở cửa từ thứ hai đến thứ bảy, được nghỉ chủ nhật.",
    "Russian": "Библиотека открыта с понедельника по субботу; вход через Windows-терминал.",
    "Greek and maths": "The angle θ and Δt are in µs: α ≤ 2π, x² + y² = 25 ½.",
    "Japanese": "図書館は月曜日に休みです。Ｗｅｂサイトをご覧ください。",
    "Chinese": "图书馆星期一休息（节假日除外）。",
    "German": "Die Bücherei öffnet um 8:30 Uhr; Straße der Freiheit 12.",
    "code": "def f(a):\n\treturn a[1] << 2  # mask 0xFF\n\nfor x in range(10): print(f'{x:02d}')",
    "a path and a hash": "usr/share/documentation-guides/readme.md 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c",
    "a base64 image": "![logo](data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk)",
    "a token": "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3",
    "an address": "See https://shop.example/search?q=red%20shoes%20size%2042&sort=price%2Basc for more.",
    "HTML source": "Write &lt;b&gt; for bold; &amp;nbsp; is a blank. AT&amp;T.",
    "a table": "| a | b | c | d |\n|---|---|---|---|\n| 1 | 2 | 3 | 4 |",
    "abbreviations": "The U.S.A., e.g. the F.B.I., and plan A B C D; x y z w are free.",
    "numbers": "Call 192 168 100 200 or 65 66 67; 01 10 11 are bits, 10 20 30 40 50 60.",
    "SOS": "In Morse, SOS is ... --- ... and T is -.",
    "a nickname": "Our team is 7h3 1337 h4x0r5, sign up before Friday.",
    "Latin": "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor.",
    "Polish": "Cena netto wynosi dwieście złotych oraz koszt dostawy do klienta w mieście.",
}


@pytest.mark.parametrize("name", WHOLE)
def test_meaningful_text_is_read_as_it_stands(name: str) -> None:
    text = WHOLE[name]
    found = reading(text)
    assert found.delivered == text
    assert found.canonical == text.replace("Ｗｅｂ", "Web")
    assert not found.revealed


SIGNS = st.text(
    alphabet=st.characters(codec=None) | st.sampled_from("aeiost &#;%\\x0=:/+-_.\n\u200b\u202e"), max_size=120
)
FRAGMENTS = st.lists(
    SIGNS
    | st.sampled_from([way(order) for way in WAYS.values() for order in PLAIN_ENGLISH[:2]])
    | st.binary(max_size=60).map(lambda data: base64.b64encode(data).decode()),
    max_size=4,
).map("".join)


@settings(deadline=None)
@given(FRAGMENTS)
@example("&amp;" * 500 + "lt;")
@example("\u202e" * 50 + "abc")
def test_both_readings_are_idempotent(text: str) -> None:
    found = reading(text)
    assert canonicalise(found.delivered) == found.delivered
    again = reading(found.canonical)
    assert again.canonical == found.canonical


@settings(deadline=None)
@given(FRAGMENTS)
def test_any_text_is_read_without_an_error(text: str) -> None:
    found = reading(text)
    assert found.given_up == (found.canonical == "" and "nesting" in found.disguises)
    for piece in [*invisible_messages(text), *unseen_text(text)]:
        assert 0 <= piece.start <= piece.end <= len(text)
    for item in find_encoded(text) if not found.given_up else []:
        assert 0 <= item.start < item.end <= len(text)


def nested(text: str, times: int) -> str:
    for _ in range(times):
        text = base64.b64encode(text.encode()).decode()
    return text


def test_nesting_is_followed_to_its_limit_and_refused_beyond() -> None:
    order = PLAIN_ENGLISH[0]
    assert spell_out(nested(order, DEPTH_LIMIT))[0] == order
    with pytest.raises(NestedTooDeep):
        spell_out(nested(order, DEPTH_LIMIT + 3))
    refused = reading(f"x {nested(order, DEPTH_LIMIT + 3)} y")
    assert refused.given_up
    assert refused.canonical == ""


PATHOLOGICAL = {
    "entities": "&amp;" * 100_000,
    "one deep entity": "&" + "amp;" * 100_000 + "lt;",
    "percent": "%41" * 100_000,
    "backslashes": "\\x4" * 150_000,
    "hex": "41" * 200_000,
    "base64": "QUJD" * 100_000,
    "Morse": ". - " * 100_000,
    "numbers": "10 " * 130_000,
    "bits": "01 " * 130_000,
    "spaced letters": "a " * 200_000,
    "dotted letters": "a." * 200_000,
    "leet": "x1 " * 130_000,
    "strange words": "qz xv bn " * 40_000,
    "marks": "e\u0301" * 200_000,
    "one letter, many marks": "a" + "\u0301" * 400_000,
    "lookalikes": "аa" * 200_000,
    "tags": "\U000e0041" * 400_000,
    "selectors": "\ufe01" * 400_000,
    "zero width": "\u200b\u200c" * 200_000,
    "overrides": "\u202e" * 400_000,
    "comments": "<!--" * 100_000,
    "hidden elements": "<a hidden>" * 40_000,
    "attributes": 'alt="' * 80_000,
    "images": "![" * 200_000,
    "front matter": "---\n" * 100_000,
    "surrogates": "\ud800\udfff" * 200_000,
    "quotes": '"' * 400_000,
    "brackets": "[" * 400_000,
    "blank": " " * 400_000,
    "lines": "\n" * 400_000,
    "one letter": "a" * 400_000,
    "one letter with a mark": "t\u0336" + "é" * 400_000,
    "full-width signs": "Ａ" + "！" * 400_000,
    "ligatures that grow": "\ufdfa" * 100_000,
}


@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_time_is_bounded_for_pathological_text(name: str) -> None:
    text = PATHOLOGICAL[name]
    half = text[: len(text) // 2]
    times = []
    for size in (half, text):
        started = time.thread_time()
        reading(size)
        unseen_text(canonicalise(size))
        times.append(time.thread_time() - started)
    # a quadratic step takes four times as long for twice the text
    assert times[1] < max(3.2 * times[0], 0.4), times
    assert times[1] < 5, times
