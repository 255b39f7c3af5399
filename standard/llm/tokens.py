"""How many tokens a text has, without the model's tokenizer.

A table of weights by UTF-8 byte: English letters three to four a token, digits and punctuation about two, every byte of
another script a half (so a Cyrillic letter counts one token, a Chinese character one and a half). Against two models'
own tokenizers it is 13-41% high over a corpus and at most 12% low on one document (odd short strings may
be lower): an estimate that guards a budget errs upwards.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def _weights() -> NDArray[np.float64]:
    weights = np.full(256, 0.5)
    for letters in (b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
        weights[list(letters)] = 0.28
    weights[list(b" ")] = 0.2
    return weights


_WEIGHTS = _weights()


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of `text` (>= 0); linear, some 50 microseconds for 30 kB."""
    if not text:
        return 0
    data = np.frombuffer(text.encode("utf-8", "replace"), dtype=np.uint8)
    return math.ceil(float(np.bincount(data, minlength=256) @ _WEIGHTS))
