"""Prevents: taking noise for a decoded message, and a decoded message for noise.

Two measures decide whether a decoding is kept: whether bytes are text at all, and how many of a line's words are common
English ones. Both are generous to real text and cheap.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_WORD = re.compile(r"[a-z]+(?:['’][a-z]+)?")
_COMMON = frozenset(
    """
    a able about above accept access account act action add address admin after again against agent ago all allow almost
    alone along already also although always am among an and another answer any anyone anything api append appear are
    area around as ask assistant at available away back bad base be became because become been before begin behind being
    believe below best better between big body book both bring build business but buy by bypass call came can cannot car
    card care carry case cause change chat check child children city claim class clear close code come command comply
    common company complete config configuration consider contain content context continue control conversation copy
    cost could country course create credentials current customer customers data database day days decode delete deliver
    described develop developer did different directive disclose disregard do document documents does doing don't done
    door down during each early easy effect eight either else email employee end enough even ever every everyone
    everything exactly example execute export face fact family far father few field file files filter final find first
    five follow following food for force forget form forward found four free friend from full function future game gave
    general get girl give given go going gone good got government great group had half hand happen hard has have he head
    health hear heart held help her here hidden high him himself his history hold home hour hours house how however
    human hundred idea if ignore important in include including increase indeed information initial input inside
    instead instruction instructions interest internal into is issue it its itself job join just keep key keys kind knew
    know known language large last later law lead leak learn least leave led left less let letter level life light like
    limit line list little live local long longer look lost lot love low made main make man many mark market matter may
    me mean means measure member memory men message messages might mind minute model money month more morning most
    mother move mr much must my name national near need never new news next nice night no none nor not note nothing now
    number obey of off office often old on once one only open operator or order other others our out output over
    override own page paragraph parents part password passwords past pay people per perhaps person place plain plan play
    please point policies policy position possible post power present previous price print prior private problem process
    program prompt provide public put question quickly quite rather read ready real really reason record refund remember
    remove repeat reply report request require respond response restrictions result return reveal right room rule rules
    run safe safety said same save saw say school second secret secrets section security see seem seen send service
    session set several shall she should show side simple since site six small so social some someone something
    sometimes soon sorry source sources special stand standard start state status stay step still stop story street
    strong student such summary support sure system take tax team tell ten text than thank that the their them then
    there these they thing things think this those though thought thousand three through thus time to today together
    told tomorrow too tool tools top toward town translate transfer true try turn two type under until up upon us use
    used user users using value verify version very view visit voice wait walk want war was watch water way we website
    week weeks well went were what when where whether which while white who whole whose why will with within without
    woman word words work world would write year years yes yet you young your yourself
    """.split()  # noqa: SIM905 - a list of words reads better as text
)
_LEAST_BYTES_OF_TEXT = 6


@lru_cache(maxsize=16_384)
def _is_known(word: str) -> bool:
    if word in _COMMON:
        return True
    for ending in ("'s", "s", "ed", "ing", "ly", "d", "r"):
        if word.endswith(ending) and word[: -len(ending)] in _COMMON:
            return True
    return False


def known_share(text: str) -> float:
    """The share (0-1) of the words of `text` that are common in English, weighed by length; 0 where there are none."""
    words = _WORD.findall(text.casefold())
    total = sum(map(len, words))
    return sum(len(word) for word in words if _is_known(word)) / total if total else 0.0


def word_count(text: str) -> int:
    """Number of words in Latin letters."""
    return len(_WORD.findall(text.casefold()))


def as_text(data: bytes) -> str | None:
    """What `data` says, if it is UTF-8 (or UTF-16) text of at least two words, or of a script without spaces."""
    if len(data) < _LEAST_BYTES_OF_TEXT:
        return None
    text = _decoded(data)
    if text is None or len(text) < 4:
        return None
    letters = spaces = 0
    for sign in text:
        if sign.isalpha():
            letters += 1
        elif sign in " \n\t\r":
            spaces += 1
        elif unicodedata.category(sign) in {"Cc", "Cn", "Co", "Cs"}:
            return None
    if letters + spaces < 0.7 * len(text):
        return None
    return text if spaces or not text.isascii() else None


def as_packed(data: bytes) -> str | None:
    """ASCII text without a blank, such as another encoding within: its reader looks into it once more."""
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        return None
    return text if len(text) >= 12 and text.isprintable() else None


def _decoded(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if text and "\x00" not in text:
        return text
    if len(data) % 2 == 0 and data.count(0) * 2.5 > len(data):
        order = "utf-16-le" if data[1] == 0 else "utf-16-be"
        try:
            return data.decode(order)
        except UnicodeDecodeError:
            return None
    return None
