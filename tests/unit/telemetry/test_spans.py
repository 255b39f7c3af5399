"""The seam of spans: what is open where, in tasks, generators and after errors; and that nothing is made for nobody."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from standard import semconv, spans
from standard.database.spans import summary
from standard.domain.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from standard.spans import Span, Value


class Kept:
    """A span that keeps what it is told."""

    recording = True
    content = False
    trace_id = "1" * 32
    span_id = "2" * 16

    def __init__(self, name: str = "root") -> None:
        self.name = name
        self.below: list[Kept] = []
        self.attributes: dict[str, Value] = {}
        self.began_ns: int | None = None
        self.failed = ""
        self.ended = 0

    def child(self, name: str, attributes: Mapping[str, Value], *, client: bool, began_ns: int | None) -> Span:
        del client
        made = Kept(name)
        made.attributes = dict(attributes)
        made.began_ns = began_ns
        self.below.append(made)
        return made

    def set(self, key: str, value: Value) -> None:
        self.attributes[key] = value

    def note(self, name: str, attributes: Mapping[str, Value]) -> None:
        self.attributes[f"note {name}"] = str(attributes)

    def link(self, traceparent: str) -> None:
        self.attributes["link"] = traceparent

    def fail(self, kind: str) -> None:
        self.failed = kind

    def end(self) -> None:
        self.ended += 1

    def headers(self) -> Mapping[str, str]:
        return {"traceparent": f"00-{self.trace_id}-{self.span_id}-01"}


@pytest.fixture
def root() -> Iterator[Kept]:
    kept = Kept()
    spans.enter(kept)
    yield kept
    spans.enter(None)


def test_outside_of_a_trace_nothing_is_made() -> None:
    with spans.span("a") as opened:
        assert opened is spans.NOWHERE
        assert spans.current() is None
        opened.set("x", 1)
    assert spans.begin("b") is spans.NOWHERE
    assert spans.outgoing() == {}
    assert spans.exemplar() is None
    assert spans.clock() == 0
    spans.waited("c", 0)


def test_of_a_call_that_is_not_recorded_no_span_is_made_but_its_context_goes_out() -> None:
    place = spans.Place("3" * 32, "4" * 16, {"traceparent": "given"})
    spans.enter(place)
    try:
        with spans.span("a") as opened:
            assert opened is place
        assert spans.outgoing() == {"traceparent": "given"}
        assert spans.exemplar() is None
    finally:
        spans.enter(None)


def test_spans_stand_within_each_other_and_end_once(root: Kept) -> None:
    with spans.span("a", {"x": 1}), spans.span("b"):
        assert spans.outgoing() == {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    assert spans.current() is root
    (a,) = root.below
    assert (a.name, a.attributes, a.ended) == ("a", {"x": 1}, 1)
    assert [each.name for each in a.below] == ["b"]
    assert a.below[0].ended == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [(NotFound("x"), "NOT_FOUND"), (ValueError("secret"), "ValueError"), (asyncio.CancelledError(), "cancelled")],
)
def test_an_error_is_told_by_its_kind_alone(root: Kept, error: BaseException, kind: str) -> None:
    with pytest.raises(type(error)), spans.span("a"):
        raise error
    assert (root.below[0].failed, root.below[0].ended) == (kind, 1)
    assert "secret" not in str(vars(root.below[0]))
    assert spans.current() is root


async def test_tasks_inherit_what_was_open_when_they_began(root: Kept) -> None:
    async def work(name: str) -> None:
        await asyncio.sleep(0)
        with spans.span(name):
            await asyncio.sleep(0)

    with spans.span("both"):
        async with asyncio.TaskGroup() as group:
            for name in ("one", "two"):
                group.create_task(work(name))
    (both,) = root.below
    assert sorted(each.name for each in both.below) == ["one", "two"]
    assert not [each for each in both.below if each.below]


def test_waits_are_told_only_where_somebody_waited(root: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: now)
    began = spans.clock()
    spans.waited("short", began)
    now += 1_500_000
    spans.waited("long", began)
    assert [(each.name, each.began_ns, each.ended) for each in root.below] == [("long", 5_000_000_000, 1)]


def test_names_of_attributes_are_those_that_were_published() -> None:
    """The package's names of generative AI are those of 1.41.0: they went elsewhere afterwards, and were kept as is."""
    from opentelemetry.semconv._incubating.attributes import (
        db_attributes,
        gen_ai_attributes,
        http_attributes,
        rpc_attributes,
        server_attributes,
        url_attributes,
    )
    from opentelemetry.semconv.attributes import error_attributes
    from opentelemetry.semconv.schemas import Schemas

    modules = (
        db_attributes, gen_ai_attributes, http_attributes, rpc_attributes, server_attributes, url_attributes,
        error_attributes,
    )  # fmt: skip
    published = {value for module in modules for value in vars(module).values() if isinstance(value, str)}
    ours = {
        value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str) and "." in value
    }
    assert ours - {semconv.SCHEMA_URL, semconv.VERSION} <= published
    assert len(ours) > 30
    operations = {each.value for each in gen_ai_attributes.GenAiOperationNameValues}
    assert {
        semconv.CHAT,
        semconv.EMBEDDINGS,
        semconv.RETRIEVAL,
        semconv.INVOKE_AGENT,
        semconv.EXECUTE_TOOL,
    } <= operations
    assert semconv.OPENAI in {each.value for each in gen_ai_attributes.GenAiProviderNameValues}
    assert semconv.POSTGRESQL in {each.value for each in db_attributes.DbSystemNameValues}
    assert Schemas.V1_41_0.value == semconv.SCHEMA_URL


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("insert into run (tenant) values (%s) on conflict do update set x = 1", "INSERT run"),
        ("update run set x = 1 from unnest(%s::int[]) as held", "UPDATE run"),
        ("with near as (select 1 from chunk c, lateral unnest(x)) select * from near join document d", "SELECT chunk"),
        ("select * from unnest(%s::int[]) k join chunk using (k) for update skip locked", "SELECT chunk"),
        ("with held as (update run set x returning y), put as (insert into other select 1) select 1", "UPDATE run"),
        ("delete from checkpoints where thread_id = any(%s)", "DELETE checkpoints"),
        ("select set_config('role', %s, true)", "SELECT"),
        ("", "statement"),
    ],
)  # fmt: skip
def test_a_statement_is_told_by_verb_and_table(text: str, told: str) -> None:
    assert summary(text) == told
