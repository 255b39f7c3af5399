"""What administrators may say of how a collection's answers are written, checked where it comes in."""

from __future__ import annotations

import re
from typing import Final

from standard.domain.errors import InvalidInput
from standard.domain.question import AnswerStyle

MAX_INSTRUCTIONS: Final = 2_000
"""Code points: they are in every prompt of the collection."""
_TAG = re.compile(
    r"[A-Za-z]{2,3}(-[A-Za-z]{3}){0,3}(-[A-Za-z]{4})?(-([A-Za-z]{2}|[0-9]{3}))?"
    r"(-([A-Za-z0-9]{5,8}|[0-9][A-Za-z0-9]{3}))*"
)
"""Language, script, region and variants of a tag (BCP 47, RFC 5646 section 2.1); extensions change no language."""


def answer_style(instructions: str, language: str) -> AnswerStyle:
    """Return a style from what was given, blanks around it taken off. Raises InvalidInput."""
    instructions, language = instructions.strip(), language.strip()
    if len(instructions) > MAX_INSTRUCTIONS:
        raise InvalidInput(
            "answer_instructions", f"have {len(instructions)} characters; at most {MAX_INSTRUCTIONS} are allowed"
        )
    if any(not character.isprintable() and character not in "\n\t" for character in instructions):
        raise InvalidInput("answer_instructions", "hold control characters, or others that show nothing")
    if language and (len(language) > 35 or not _TAG.fullmatch(language)):
        raise InvalidInput("answer_language", f"{language[:40]!r} is no language tag like de, pt-BR or zh-Hant")
    return AnswerStyle(instructions, language)
