"""Prevents: instructions that a model reads and a person does not see (tag characters, zero-width text, bidi tricks).

Text as a reader sees it: what has no width or only reorders is gone, and every line break is a line feed. What carries
meaning stays whole: joined emoji, flags, Persian and Indic joiners, variation selectors behind their signs.
"""

from __future__ import annotations

import re

# Scripts in which a joiner or non-joiner changes what is written: Arabic, Syriac, the Indic scripts, Myanmar, Khmer,
# Mongolian and their supplements.
_JOINING = "\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u18af\ua840-\ua87f\uaa60-\uaa7f\U00010a00-\U00010aff"
_PICTURES = "\u00a9\u00ae\u203c\u2049\u2100-\u214f\u2190-\u21ff\u2300-\u27bf\u2900-\u2bff\u3030\u303d\u3297\u3299"
_EMOJI = _PICTURES + "\U0001f000-\U0001faff"
_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"

# Format characters (general category Cf, Unicode 16) other than joiners, tags and the signs that Arabic, Syriac and
# Kaithi write before their numbers, which are seen; fillers, which are letters to Unicode and blank to the eye.
_UNSEEN = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufeff\uffa0\ufff9-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
)
_DROPPED = re.compile(f"[\x80-\x9f{_UNSEEN}]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_LINE_BREAK = re.compile("\r\n?|[\v\f\x85\u2028\u2029]")
_FLAG = "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{2,6}\U000e007f"
# Each alternative that keeps something is a group; whatever else is matched goes.
_CONDITIONAL = re.compile(
    f"({_FLAG})"
    "|[\U000e0000-\U000e007f]"
    f"|((?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}]))"
    f"|((?<=[{_JOINING}])[\u200c\u200d](?=[{_JOINING}\\s]|$))"
    "|[\u200c\u200d]"
    f"|((?<=[{_EMOJI}])[\ufe0e\ufe0f]|(?<=[0-9#*])\ufe0f(?=\u20e3))"
    f"|((?<=[{_IDEOGRAPHS}])[\ufe00-\ufe0d\U000e0100-\U000e01ef])"
    "|[\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)


def canonicalise(text: str) -> str:
    """Return `text` as a reader sees it. Idempotent; linear in its length."""
    text = _CONTROL.sub("", _LINE_BREAK.sub("\n", text))
    if text.isascii():
        return text
    text = _SURROGATE.sub("\ufffd", _DROPPED.sub("", text))
    return _CONDITIONAL.sub(_kept, text)


def _kept(match: re.Match[str]) -> str:
    return match[0] if match.lastindex else ""
