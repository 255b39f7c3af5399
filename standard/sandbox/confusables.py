"""Lookalikes of ASCII letters, from the data of the package confusable-homoglyphs (Unicode's confusables.txt)."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

# Letters of Latin alphabets with marks are letters of their own, not disguises.
_FIRST = 0x250


@cache
def load_confusables() -> dict[int, str]:
    """Map code points of single letters to the ASCII letter or digit they look like."""
    data = json.loads(files("confusable_homoglyphs").joinpath("confusables.json").read_text("utf-8"))
    table: dict[int, str] = {}
    for sign, others in data.items():
        if len(sign) != 1 or ord(sign) < _FIRST or not sign.isalpha():
            continue
        for other in others:
            plain = other["c"]
            if len(plain) == 1 and plain.isascii() and plain.isalpha():
                if sign.isupper() and plain.islower():
                    plain = "I" if plain == "l" else plain.upper()
                table[ord(sign)] = plain
                break
    return table
