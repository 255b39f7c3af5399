"""Times of day in one spelling: "9 pm", "half past nine in the evening" and "21:00" are the same hour."""

from __future__ import annotations

import re

_HOURS = {
    name: hour
    for hour, name in enumerate(
        ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"), 1
    )
}
_HOUR = rf"(?P<hour>\d{{1,2}}|{'|'.join(_HOURS)})"
_PART = r"(?:\s+(?:in\s+the\s+(?P<part>morning|afternoon|evening)|at\s+(?P<night>night)))?"
_TIME = re.compile(
    rf"\b(?:(?P<lead>half|quarter)\s+(?P<side>past|to)\s+)?{_HOUR}(?:[:.](?P<minutes>[0-5]\d))?"
    rf"(?:\s*(?P<half>[ap])\.?m\b\.?|\s+(?P<sharp>o'clock))?{_PART}(?![\w:-])",
    re.IGNORECASE,
)
_NAMED = re.compile(r"\b(?:12\s+)?(noon|midday|midnight)\b", re.IGNORECASE)
_HINT = re.compile(r"[ap]\.?m\b|o'clock|\d:\d|\b(?:half|quarter)\s+(?:past|to)\b|noon|midday|midnight", re.IGNORECASE)
_LATE = frozenset({"p", "afternoon", "evening", "night"})


def spell_times(text: str) -> str:
    """The text with its times of day as HH:MM; what only may be one ("at 9") stays."""
    if _HINT.search(text) is None:
        return text
    text = _NAMED.sub(lambda match: "00:00" if match[1].casefold() == "midnight" else "12:00", text)
    return _TIME.sub(_spelt, text)


def _spelt(match: re.Match[str]) -> str:
    colon = match["minutes"] is not None and ":" in match[0]
    if not (match["lead"] or match["half"] or match["sharp"] or colon):
        return match[0]
    hour = _HOURS.get(match["hour"].casefold()) or int(match["hour"])
    minutes = int(match["minutes"] or 0)
    if match["lead"]:
        minutes = 30 if match["lead"].casefold() == "half" else 15
        if match["side"].casefold() == "to":
            hour, minutes = hour - 1, 60 - minutes
    said = (match["half"] or match["part"] or match["night"] or "").casefold()
    if said in _LATE and hour < 12:
        hour += 12
    elif said in {"a", "morning"} and hour == 12:
        hour = 0
    return f"{hour % 24:02d}:{minutes:02d}" if hour <= 24 else match[0]
