"""What kind of thing a question asks for, and whether a sentence has one that the question did not bring along."""

from __future__ import annotations

import re
from enum import StrEnum


class AnswerType(StrEnum):
    """The kinds that can be recognised in a sentence; OTHER is everything else."""

    PERSON = "person"
    TIME = "time"
    DURATION = "duration"
    MONEY = "money"
    NUMBER = "number"
    PLACE = "place"
    OTHER = "other"


_NUMBER_WORD = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred"
    "|thousand|million|billion|half|dozen|twice|once"
)
_UNIT = r"(?:seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|months?|years?|yrs?|nights?|quarters?|semesters?)"
_MONTH = (
    "january|february|march|april|may|june|july|august|september|october|november|december"
    "|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec"
)
_DAY = "monday|tuesday|wednesday|thursday|friday|saturday|sunday|weekdays?|weekends?"

_TIME_WORD = rf"year|date|day|month|quarter|deadline|time|hours|{_UNIT}"
_MEASURE = "number|percent(?:age)?|share|rate|speed|weight|height|size|limit|capacity|voltage|watts?|score|temperature"

# The first kind whose words a question has wins: "how many days" is a duration, "what did it cost" is money.
_ASKED: tuple[tuple[AnswerType, str], ...] = (
    (AnswerType.DURATION, rf"\bhow (?:long|many {_UNIT}|soon)\b|\bfor how (?:long|many)\b|\bduration\b"),
    (
        AnswerType.TIME,
        rf"\b(?:when(?:'s)?|until when|(?:which|what|in what|the) (?:{_TIME_WORD})|how (?:late|early|old))\b",
    ),
    (AnswerType.TIME, r"\b(?:latest|earliest|deadline|last day)\b"),
    (AnswerType.MONEY, r"\bhow much (?:do|does|did|is|are|was|would|will|money)\b"),
    (AnswerType.MONEY, r"\b(?:price[ds]?|costs?|fees?|fines?|salary|wage|paid|discount|budget|charged?|rent|fare)\b"),
    (
        AnswerType.NUMBER,
        r"\bhow (?:many|much|high|far|fast|big|large|heavy|tall|deep|wide|often|thick|strong|hot|cold)\b",
    ),
    (AnswerType.NUMBER, rf"\b(?:{_MEASURE}) of\b|\b(?:what|which) (?:{_MEASURE})\b"),
    (AnswerType.PERSON, r"\bwho(?:'s|m|se)?\b|\bwhat(?:'s| is) the name of the (?:person|man|woman|director|head)\b"),
    (
        AnswerType.PLACE,
        r"\bwhere(?:'s)?\b|\b(?:which|what) (?:city|country|town|room|building|office|port|address|floor)\b",
    ),
)
_ASKS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _ASKED)

_HAS: dict[AnswerType, re.Pattern[str]] = {
    AnswerType.DURATION: re.compile(
        rf"\b(?:\d+(?:[.,–-]\d+)*|{_NUMBER_WORD}|a|an)[\s-]+(?:\w+\s)?{_UNIT}\b", re.IGNORECASE
    ),
    AnswerType.TIME: re.compile(
        rf"\b(?:1[5-9]|20)\d\d\b|\b\d{{1,2}}[:.]\d\d\b|\b\d{{1,2}}\s?[ap]\.?m\b|\b(?:{_MONTH})\b\.?\s?\d"
        rf"|\d\.?\s?(?:{_MONTH})\b|\b(?:{_DAY})\b|\b\d{{4}}-\d\d|\bnoon\b|\bmidnight\b|\b\d+\s{_UNIT}\b",
        re.IGNORECASE,
    ),
    AnswerType.MONEY: re.compile(
        r"[$€£¥₹]\s?\d|\d\s?(?:[$€£¥₹]|%|eur\b|usd\b|gbp\b|inr\b|chf\b|dollars?\b|euros?\b|pounds?\b|per ?cent\b)"
        r"|\b(?:USD|EUR|GBP|INR)\b|\bfree of charge\b|\bno (?:charge|fee|cost)\b",
        re.IGNORECASE,
    ),
    AnswerType.NUMBER: re.compile(rf"\d|\b(?:{_NUMBER_WORD})\b", re.IGNORECASE),
    AnswerType.PERSON: re.compile(
        r"\b(?:Dr|Prof|Mr|Mrs|Ms|Capt)\.?\s[A-Z]|\b[A-Z][\w’'-]+\s(?:[A-Z]\.\s)?[A-Z][\w’'-]+"
    ),
    AnswerType.PLACE: re.compile(
        r"\b(?:in|at|on|to|from|near)\s(?:the\s)?[A-Z]|\b(?:Room|Floor|Building|Street|Road|Hall)\b"
        r"|\b(?:under|behind|beside|beneath|inside|above|next to|in front of)\b"
    ),
}
_DIGITS = re.compile(r"\d+(?:[.,:]\d+)*")
_NAMED = re.compile(r"\b[A-Z][\w’'-]+")


def expected_type(question: str) -> AnswerType:
    """The kind of thing the question asks for."""
    return next((kind for kind, pattern in _ASKS if pattern.search(question)), AnswerType.OTHER)


def offers(kind: AnswerType, sentence: str, question: str) -> bool:
    """Whether the sentence has a thing of that kind that does not stand in the question already."""
    if kind is AnswerType.OTHER:
        return False
    pattern = _HAS[kind]
    known = question.casefold()
    for match in pattern.finditer(sentence):
        found = match[0]
        if kind is AnswerType.PERSON:
            if any(name.casefold() not in known for name in _NAMED.findall(found)):
                return True
            continue
        digits = _DIGITS.findall(found)
        if not digits or any(number not in known for number in digits):
            return True
    return False
