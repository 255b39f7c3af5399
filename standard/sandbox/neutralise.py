"""Prevents: retrieved text that speaks the prompt's own language: template tokens, section tags, source tags.

What looks like one is changed by a sign or two, so that a person reads the same and a tokenizer, a parser and a model
do not. Quotes for citations are taken from the passage itself, never from this.
"""

from __future__ import annotations

import re

SECTION_KINDS = ("passage", "question", "turn", "tool_result", "summary", "note")
"""Kinds of sections that prompts have, and such as other systems' prompts have."""

NO_ANSWER = "NOT_IN_PASSAGES"
"""What a model answers, alone, where the passages do not hold the answer. It must never come from a passage."""

_NAMES = (
    "s|bos|eos|pad|unk|mask|sep|cls|sop|eop|bom|eom|think|thinking|analysis|final|tools?|tool_calls?|tool_responses?"
    "|tool_results?|function_calls?|function_results?|invoke|parameter|antml:[a-z_]+|minimax:[a-z_]+"
    "|start_of_turn|end_of_turn|start_of_image|end_of_image|image_soft_token|start_function_\\w+|end_function_\\w+"
    "|begin_of_\\w+|end_of_\\w+|start_header_id|end_header_id|extra_id_\\d+|unused_?\\d+|reserved_\\w+|special_\\d+"
    "|fim_\\w+|0x[0-9a-f]{2}|sys|system|user|assistant|human|seed:[a-z_:]+"
)
_BRACKET_NAMES = (
    "INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|CALL_ID|ARGS|THINK|IMG|IMG_BREAK|IMG_END"
    "|PREFIX|MIDDLE|SUFFIX|MASK|gMASK|sMASK|BOS|EOS|PAD|UNK|CLS|SEP"
)
# <|im_start|> and its kin, in ASCII or with the full-width bars and block spaces of some families.
_BARRED = re.compile(r"<\s?[|｜]\s?([^<>|｜\n]{1,64}?)\s?[|｜]\s?>")
_ANGLED = re.compile(rf"<\s?(/?\s?(?:{_NAMES}))(\s[^<>\n]{{0,200}})?>", re.IGNORECASE)
_DOUBLE_ANGLED = re.compile(r"<<\s?(/?\s?SYS\s?)>>", re.IGNORECASE)
_BRACKETED = re.compile(rf"\[\s?(/?\s?(?:{_BRACKET_NAMES}))\s?\]")
_TILDED = re.compile(r"(\]~!?b\[|\]~b\]|\[e~\[)")
_ROLE_LINE = re.compile(
    r"^(\s{0,3}(?:(?:human|assistant|user|system)"
    r"|\#{2,4}\s?(?:human|assistant|user|system|instruction|input|response|observation)))\s?:",
    re.IGNORECASE | re.MULTILINE,
)
_SECTION = re.compile(rf"[<＜﹤‹](\s*[/／]?\s*(?:{'|'.join(SECTION_KINDS)})\b)", re.IGNORECASE)
_SOURCE_TAG = re.compile(r"([\[【［])(\s*[sS]\s?\d[^\[\]【】［］\n]{0,60})([\]】］])")
_SENTINEL = re.compile(re.escape(NO_ANSWER), re.IGNORECASE)


def neutralise(text: str) -> str:
    """Return canonical `text` without anything that a prompt, a template or the citation parser would act upon."""
    if "<" in text or "＜" in text or "﹤" in text:
        text = _BARRED.sub(r"<¦\1¦>", text)
        text = _DOUBLE_ANGLED.sub(r"«\1»", text)
        text = _ANGLED.sub(r"‹\1\2›", text)
        text = _SECTION.sub(r"⟨\1", text)
    if "[" in text or "]" in text or "【" in text or "［" in text:
        text = _BRACKETED.sub(r"(\1)", text)
        text = _TILDED.sub(lambda match: match[0].replace("~", "∼"), text)
        text = _SOURCE_TAG.sub(r"(\2)", text)
    text = _ROLE_LINE.sub(r"\1 ∶", text)
    return _SENTINEL.sub(lambda match: match[0].replace("_", "-"), text)
