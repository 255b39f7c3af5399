"""What templates stand for, and a run in a contract's frames."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from router.http.contract.template import Values, render, render_text
from router.http.openai_chat import content_of, step_line
from router.http.wire import sse_frame, sse_text, to_json_bytes
from standard.domain.event import CitationMade, Completed, TokenEmitted
from standard.unicode import encodable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from router.http.contract.compiled import Frame, Stream
    from router.http.contract.paths import Sources
    from router.http.contract.template import Template
    from router.http.errors import Problem
    from standard.domain.answer import Answer, Citation
    from standard.domain.event import Event
    from standard.domain.passage import RetrievedPassage
    from standard.domain.question import Question


def common(run_id: str, question: str, session_id: str) -> dict[str, object]:
    """Values that every template has."""
    now = time.time()
    return {
        "request_id": run_id,
        "session_id": session_id,
        "question": question,
        "created": int(now),
        "created_ms": int(now * 1000),
        "created_iso": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds"),
    }


def final(answer: Answer) -> dict[str, object]:
    """Values that there are once the answer is."""
    usage, timings = answer.usage, answer.timings
    return {
        "answer": content_of(answer),
        "clarification": answer.clarification,
        "route": answer.route.value,
        "outcome": answer.outcome.value if answer.outcome else None,
        "stop_reason": answer.stop_reason.value if answer.stop_reason else None,
        "answer_source": answer.source.value,
        "steps": answer.steps,
        "notices": list(answer.notices),
        "usage.input_tokens": usage.input_tokens,
        "usage.output_tokens": usage.output_tokens,
        "usage.total_tokens": usage.billed_tokens,
        "usage.cached_tokens": usage.cached_tokens,
        "usage.cost_usd": usage.cost_usd,
        "timings.total_seconds": timings.total_seconds,
        "timings.first_token_seconds": timings.first_token_seconds,
        "timings.retrieve_seconds": timings.retrieve_seconds,
    }


def passage_items(passages: Sequence[RetrievedPassage]) -> list[dict[str, object]]:
    """Passages as `$each` sees them, numbered from 1."""
    return [
        {
            "passage.number": number,
            "passage.id": found.passage.passage_id,
            "passage.document_id": found.passage.document_id,
            "passage.title": found.passage.title.raw,
            "passage.uri": found.passage.uri,
            "passage.text": found.passage.text.raw,
            "passage.score": found.score,
            "passage.section": found.passage.section_heading,
            "passage.position": found.passage.position,
            "passage.metadata": dict(found.passage.metadata),
        }
        for number, found in enumerate(passages, start=1)
    ]


def citation_items(citations: Sequence[Citation], passages: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Citations as `$each` sees them, numbered from 1; a score where the cited passage was among `passages`, else 0."""
    scores = {passage["passage.id"]: passage["passage.score"] for passage in passages}
    return [
        {
            "citation.number": number,
            "citation.passage_id": citation.passage_id,
            "citation.document_id": citation.document_id,
            "citation.title": citation.title,
            "citation.uri": citation.uri,
            "citation.quote": citation.quote,
            "citation.start": citation.answer_start,
            "citation.end": citation.answer_end,
            "citation.score": scores.get(citation.passage_id, 0.0),
        }
        for number, citation in enumerate(citations, start=1)
    ]


def header_list(headers: Mapping[str, Template], values: Values) -> list[tuple[str, str]]:
    """Rendered headers; a value cannot end its line (see wire.header_value)."""
    return [(name, render_text(template, values)) for name, template in headers.items()]


class ContractFrames:
    """A run in a contract's frames."""

    def __init__(self, stream: Stream, question: Question, sources: Sources) -> None:
        self._stream = stream
        self._sources = sources
        self._passages: list[dict[str, object]] = []
        self._citations = 0
        self._written: list[str] = []
        self.named = common(question.request_id, question.text.raw, question.session_id)
        self.content_type = stream.content_type
        beat = f": {stream.heartbeat}{2 * stream.newline}" if stream.framing == "sse" and stream.heartbeat else ""
        self.heartbeat = beat.encode()

    def start(self, passages: list[dict[str, object]]) -> bytes:
        """What comes before everything else."""
        self._passages = passages
        return self._frames("start", {}, {"passages": passages})

    def event(self, event: Event) -> bytes:
        """An event's frames; most kinds have none."""
        match event.body:
            case TokenEmitted(text=text):
                self._written.append(text)
                return self._frames("token", {"token": text})
            case CitationMade(citation=citation):
                self._citations += 1
                item = citation_items([citation], self._passages)[0] | {"citation.number": self._citations}
                return self._frames("citation", item)
            case Completed(answer=answer):
                return self._end(answer)
        line = step_line(event)
        return self._frames("step", {"step": line}) if line else b""

    def _end(self, answer: Answer) -> bytes:
        written, whole = "".join(self._written), content_of(answer)
        rest = whole.removeprefix(written) if whole.startswith(written) else ""
        frames = self._frames("token", {"token": rest}) if rest else b""
        lists = {"passages": self._passages, "citations": citation_items(answer.citations, self._passages)}
        return frames + self._frames("end", final(answer), lists)

    def failure(self, problem: Problem) -> bytes:
        """The error's frames; without any the connection just ends."""
        return self._frames("error", error_values(problem))

    def _frames(
        self, on: str, more: Mapping[str, object], lists: Mapping[str, Sequence[Mapping[str, object]]] | None = None
    ) -> bytes:
        frames = self._stream.frames.get(on)
        if not frames:
            return b""
        values = Values({**self.named, **more}, lists or {}, self._sources)
        return b"".join(self._framed(frame, values) for frame in frames)

    def _framed(self, frame: Frame, values: Values) -> bytes:
        stream = self._stream
        if frame.is_json:
            data = to_json_bytes(render(frame.template, values))
        else:
            data = b"" if frame.template is None else encodable(render_text(frame.template, values)).encode()
        if stream.framing == "ndjson":
            return data + stream.newline.encode()
        if stream.framing == "raw":
            return data
        if frame.is_json and stream.newline == "\n":
            return sse_frame(data, event=frame.event)
        return sse_text(data.decode(), event=frame.event, newline=stream.newline)


def error_values(problem: Problem) -> dict[str, object]:
    """Values of an error's template."""
    return {
        "error.status": problem.status,
        "error.reason": problem.reason,
        "error.message": problem.message,
        "error.field": problem.field,
    }
