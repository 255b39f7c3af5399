"""Generated cases: documents that carry attacks, each made from its number alone, so that a failure can be repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass

from standard.domain.passage import Passage
from standard.domain.text import UntrustedText
from tests.security.attacks import CARRIERS, DISGUISED, ENCODED, FORGERIES, INVISIBLE, MARKER, ORDERS

SEED = 20_240_611
_WAYS = {**DISGUISED, **ENCODED, **INVISIBLE}
_JOINTS = ("", " ", "\n", "\n\n", "\r\n", "\u2028", "\x0b", "\u200b", "\x00", "\ud800", "\U000e0041", "\t")


@dataclass(frozen=True, slots=True)
class Case:
    """Passages of one request, the question, and the markers that are drawn: the first stands in the content."""

    number: int
    passages: tuple[Passage, ...]
    question: str
    markers: tuple[str, ...]


def case(number: int) -> Case:
    """The case of this number."""
    generator = random.Random(SEED * 1_000_003 + number)
    passages = tuple(_passage(generator, index) for index in range(generator.choice((1, 1, 2, 3))))
    return Case(
        number=number,
        passages=passages,
        question=_text(generator) if generator.random() < 0.2 else "How often is the pump serviced?",
        markers=(MARKER, f"{generator.getrandbits(128):032x}", f"{generator.getrandbits(128):032x}"),
    )


def _passage(generator: random.Random, index: int) -> Passage:
    title, uri, heading = "Pump handbook", f"https://wiki.shop.example/pump/{index}", "Service"
    place = generator.random()
    text = _text(generator) if place < 0.8 else "The pump is serviced every six months."
    if 0.6 < place < 0.9:
        title = _field(generator)
    if 0.7 < place < 0.95:
        uri = f"wiki/{_field(generator)}"
    if place > 0.85:
        heading = _field(generator)
    return Passage(
        f"d{index}#0",
        f"d{index}",
        UntrustedText(title),
        uri,
        UntrustedText(text),
        0,
        "",
        section_heading=heading,
    )


def _text(generator: random.Random) -> str:
    payload = _payload(generator)
    return generator.choice(list(CARRIERS.values()))(payload, generator)


def _field(generator: random.Random) -> str:
    payload = _payload(generator)
    if generator.random() < 0.1:
        payload *= generator.randint(2, 30)
    return payload


def _payload(generator: random.Random) -> str:
    """An order, a forgery or both, disguised or not, with strange signs in between."""
    parts = []
    for _ in range(generator.choice((1, 1, 2, 3))):
        part = generator.choice(ORDERS if generator.random() < 0.5 else FORGERIES)
        if part.isascii() and generator.random() < 0.5:
            part = generator.choice(list(_WAYS.values()))(part)
            if part.isascii() and len(part) < 4_000 and generator.random() < 0.1:
                part = generator.choice(list(_WAYS.values()))(part)
        parts.append(part)
    return generator.choice(_JOINTS).join(parts)
