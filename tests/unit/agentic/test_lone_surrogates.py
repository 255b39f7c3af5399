"""What a model's escapes spell can be kept with the state of a run, whatever it is."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agentic.structured import parse_reply
from standard.unicode import encodable, in_texts

_TEXT = st.text(st.characters(exclude_categories=()))
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(_TEXT, inner),
    max_leaves=20,
)


class Shape(BaseModel):
    """A reply."""

    reason: str
    known: list[str]


@given(_JSON)
def test_a_value_of_any_json_has_a_utf8(value: object) -> None:
    json.dumps(in_texts(value, encodable), ensure_ascii=False).encode("utf-8")


def test_a_lone_surrogate_in_a_reply_is_read_as_a_question_mark() -> None:
    reply = parse_reply('{"reason": "half \\ud83d", "known": ["\\udc00", "Zoë 🙂"]}', Shape)
    assert reply == Shape(reason="half ?", known=["?", "Zoë 🙂"])
