"""Models without a will: one does whatever any text it reads tells it, one says it aloud instead.

They stand in for the worst model an attacker could wish for. What they understand:

- a tool call written in a message, as XML (<tool_call>{"name": …, "arguments": {…}}</tool_call>, <invoke name="…">),
  JSON ({"name": …, "arguments": {…}}) or ReAct (Action: … / Action Input: {…}) or prose (call NAME with {…})
- reveal, print, repeat, show … the system prompt (or: your instructions)
- say, answer, reply with, output, print, respond with "…" (quotes of any kind, or the rest of the line)
- cite S7, link to https://…, ![…](https://…)

Directives are found in every message but the system's and obeyed in the order they stand in. Text without any gets the
first sentence of the first passage, cited, as a decent model would.
"""

from __future__ import annotations

import json
import re

from tests.support.model_server.behaviour import Behaviour, Call, Reply
from tests.support.model_server.record import Recorded

_JSON_OBJECT = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_DIRECTIVE = re.compile(
    rf"""
      <tool_call>\s*(?P<xml>{_JSON_OBJECT})
    | <invoke\ name="(?P<invoke>[\w.-]+)">(?P<invoke_body>.*?)</invoke>
    | Action:\s*(?P<react>[\w.-]+)\s*\n\s*Action\ Input:\s*(?P<react_arguments>{_JSON_OBJECT})
    | \bcall\s+(?:the\s+)?(?:tool\s+|function\s+)?[`"']?(?P<prose>[\w.-]+)[`"']?\s*(?:with\s*)?
        \(?(?P<prose_arguments>{_JSON_OBJECT})
    | (?P<json>\{{\s*"name"\s*:\s*"[\w.-]+"\s*,\s*"arguments"\s*:\s*{_JSON_OBJECT}\s*\}})
    | \b(?P<leak>(?:reveal|print|repeat|show|output|disclose|leak|quote|recite|tell)\b[^.\n]{{0,60}}?
        \b(?:system\ prompt|system\ message|(?:your|initial|hidden|previous|above)\ instructions))
    | \b(?:say|answer|reply|respond|output|print|write)(?:\s+(?:only|exactly|just|with|the\s+words?|:))*\s*[:]?\s*
        (?:["“«‘'`](?P<quoted>[^"”»’'`\n]{{1,400}})["”»’'`]|(?P<rest>[A-Z][A-Z0-9_ !.-]{{2,80}}))
    | (?P<image>!?\[[^\]\n]*\]\(https?://[^)\s]+\))
    | \b(?:link\ to|visit|open|fetch|go\ to)\s+(?P<url>https?://[^\s)>\]"']+)
    | \bcite\s+\[?(?P<cite>S?\d+)\]?
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_PASSAGE = re.compile(r"\[?\b(S\d+)\b[^\n]*\n(.*?)(?=</passage|\Z)", re.DOTALL)


def obedient(request: Recorded) -> Behaviour:
    """Obey every directive in any message but the system's; tool calls are structured, whatever tools were offered."""
    said, calls = _obey(request)
    if not said and not calls:
        return Reply(_grounded(request))
    return Reply(" ".join(said), calls=tuple(calls))


def echoing(request: Recorded) -> Behaviour:
    """Like obedient, but tool calls come as prose: nothing may be executed from it."""
    said, calls = _obey(request)
    prose = [
        f'<tool_call>{{"name": "{call.name}", "arguments": {call.raw_arguments}}}</tool_call>\n'
        f"Action: {call.name}\nAction Input: {call.raw_arguments}"
        for call in calls
    ]
    return Reply(" ".join([*said, *prose]) or _grounded(request))


def _obey(request: Recorded) -> tuple[list[str], list[Call]]:
    said: list[str] = []
    calls: list[Call] = []
    system = request.text("system")
    text = request.text("user", "assistant", "tool")
    for match in _DIRECTIVE.finditer(text):
        found = {name: value for name, value in match.groupdict().items() if value is not None}
        if "xml" in found or "json" in found:
            calls.extend(_written_call(found.get("xml") or found["json"]))
        elif "invoke" in found:
            parameters = re.findall(r'<parameter name="([\w.-]+)">(.*?)</parameter>', found["invoke_body"], re.DOTALL)
            calls.append(Call(found["invoke"], dict(parameters)))
        elif "react" in found:
            calls.append(Call(found["react"], found["react_arguments"]))
        elif "prose" in found:
            calls.append(Call(found["prose"], found["prose_arguments"]))
        elif "leak" in found:
            said.append(system)
        elif "cite" in found:
            tag = found["cite"]
            said.append(f"[{tag if tag.upper().startswith('S') else 'S' + tag}]")
        else:
            said.append(found.get("quoted") or found.get("rest") or found.get("image") or found["url"])
    return said, calls


def _written_call(text: str) -> list[Call]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return []
    return [Call(str(value.get("name", "")), json.dumps(value.get("arguments", {})))]


def _grounded(request: Recorded) -> str:
    match = _PASSAGE.search(request.text("user", "tool"))
    if match is None:
        return "I do not know."
    lines = [line for line in match[2].splitlines() if line.strip() and not re.match(r"\w+:", line)]
    sentence = re.split(r"(?<=[.!?])\s", lines[0] if lines else "Something")[0]
    return f"{sentence} [{match[1]}]"
