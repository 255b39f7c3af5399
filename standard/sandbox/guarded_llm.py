"""Prevents: a model that was asked without a canary, and a reply that carries the system prompt on into the next call.

Whatever asks a model asks through `GuardedLlm`, which sets the canary at both ends of every system message. Replies
that are not shown but worked with (judgements, plans, queries, tool calls, records, reviews) are looked through before
anything is done with them: the canary here, in the raw reply; stretches of the prompt where the reply's values are
read (`leak_of`). What is streamed to a user is `standard.outlet`'s to watch, with the secret of the same prompt.

The canary is drawn once a process, where the parts are put together. So the beginning of each prompt stays the same and
a model server's prefix cache works, and what has to be looked for is worked out once a prompt, not once a question. A
restart or another replica draws another one: what a run left behind (checkpoints, journal) was looked through by the
process that wrote it, before it was written, so none needs to know another's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from standard.sandbox.canary import Secret, draw_canary, guard_prompt, holds_canary, leak_in
from standard.sandbox.prompt import PromptText

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from standard.llm.protocol import Completion, Llm, LlmRequest, Message, Purpose

MAX_PROMPTS = 64
"""System prompts whose secrets are remembered, those used last: a dozen of ours, and those of styled collections."""


class GuardedLlm:
    """An Llm whose prompts hold a canary. `on_leak` is told the purpose of each call whose reply was withheld."""

    def __init__(self, llm: Llm, canary: str = "", on_leak: Callable[[Purpose], None] | None = None) -> None:
        self._llm = llm
        self._canary = canary or draw_canary()
        self._on_leak = on_leak
        self._known: OrderedDict[str, tuple[PromptText, Secret]] = OrderedDict()

    def secret(self, system: PromptText) -> Secret:
        """What of a system prompt must not get out."""
        return self._guarded(system)[1]

    def leak_of(self, system: PromptText, value: object) -> str:
        """What of a system prompt stands in the texts of a reply's values: "canary", "system-prompt" or nothing.

        `value` is text, or mappings, sequences and sets of such; keys are not looked at, since prompts show them. Texts
        are read joined, so that a prompt told in instalments is found as well.
        """
        return leak_in(" ".join(texts_in(value)), self.secret(system))

    def withheld(self, purpose: Purpose) -> None:
        """Note that a reply was not used because it repeats its prompt."""
        if self._on_leak is not None:
            self._on_leak(purpose)

    async def complete(self, request: LlmRequest) -> Completion:
        """Make one call. A reply that holds the canary comes back empty, with finish_reason content_filter."""
        completion = await self._llm.complete(self._with_canary(request))
        said = [completion.text, *(part for call in completion.tool_calls for part in (call.name, call.arguments))]
        if not any(holds_canary(text, secret) for text in said for secret in self._secrets(request)[:1]):
            return completion
        self.withheld(request.purpose)
        return replace(completion, text="", tool_calls=(), finish_reason="content_filter")

    def stream(self, request: LlmRequest) -> AsyncIterator[str | Completion]:
        """Make one call and yield its text as it comes, unlooked at: an Outlet must stand behind."""
        return self._llm.stream(self._with_canary(request))

    def count_tokens(self, text: str) -> int:
        """As the model's own."""
        return self._llm.count_tokens(text)

    def _secrets(self, request: LlmRequest) -> list[Secret]:
        return [self.secret(message.content) for message in request.messages if message.role == "system"]

    def _with_canary(self, request: LlmRequest) -> LlmRequest:
        return replace(request, messages=tuple(self._message(message) for message in request.messages))

    def _message(self, message: Message) -> Message:
        return replace(message, content=self._guarded(message.content)[0]) if message.role == "system" else message

    def _guarded(self, system: PromptText) -> tuple[PromptText, Secret]:
        known = self._known.get(system.value)
        if known is None:
            known = self._known[system.value] = guard_prompt(system, self._canary)
            if len(self._known) > MAX_PROMPTS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(system.value)
        return known


def guarded(llm: Llm) -> GuardedLlm:
    """The model with a canary in its prompts: itself where it has one, so that nobody can forget it."""
    return llm if isinstance(llm, GuardedLlm) else GuardedLlm(llm)


def texts_in(value: object) -> Iterator[str]:
    """Every text among the values of a structure, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from texts_in(inner)
    elif isinstance(value, list | tuple | set | frozenset):
        items: Sequence[object] = list(value)
        for inner in items:
            yield from texts_in(inner)
