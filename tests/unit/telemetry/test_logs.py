"""What a log record shows and what it holds back."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from router.settings import load_settings
from router.telemetry import logs
from router.telemetry.calls import Calls
from router.telemetry.redaction import SECRET, TEXTS, WITHHELD, redaction, secrets_of, stricter
from standard.domain.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS = "Where is the spare bilge pump kept?"
KEY = "of-the-model-and-nobody-else"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Loggers follow each configuration here, and logging is as it was afterwards."""
    configure = logs._configure

    def unkept(level: int, processors: list[Any], *, keep: bool) -> None:
        del keep
        configure(level, processors, keep=False)

    monkeypatch.setattr(logs, "_configure", unkept)
    root = logging.getLogger()
    handlers, level, config = root.handlers[:], root.level, structlog.get_config()
    yield
    root.handlers[:], root.level = handlers, level
    structlog.configure(**config)


def configured(**sections: dict[str, Any]) -> None:
    log = {"format": "json"} | sections.pop("log", {})
    logs.configure_logs(load_settings(log=log, **sections))


def records(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_within_a_call_names_it_and_one_outside_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    configured()
    log = structlog.get_logger("test")
    log.info("before")
    calls = Calls(access="all")
    call = calls.begin("pointsman.v1.GatewayService/Answer", {}, [TRACE])
    log.info("within", dependency="llm")
    log.info("and again")
    call.route, call.outcome = "standard", "answered"
    calls.end(call, "OK", 0.25)
    log.info("after")
    before, within, again, access, after = records(capsys)
    for line in (within, again, access):
        assert line["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
        assert line["span_id"] == "00f067aa0ba902b7"
        assert line["request_id"] == within["request_id"]
    assert len(within["request_id"]) == 32
    assert {key: access[key] for key in ("event", "method", "status", "route", "outcome", "seconds")} == {
        "event": "call", "method": "pointsman.v1.GatewayService/Answer", "status": "OK", "route": "standard",
        "outcome": "answered", "seconds": 0.25,
    }  # fmt: skip
    for line in (before, after):
        assert not {"trace_id", "span_id", "request_id"} & set(line)


@pytest.mark.parametrize(
    ("access", "told"), [("all", ["OK", "NotFound", "Internal"]), ("errors", ["NotFound", "Internal"]), ("nothing", [])]
)
def test_which_calls_have_a_line_is_a_setting(capsys: pytest.CaptureFixture[str], access: Any, told: list[str]) -> None:  # noqa: ANN401
    configured()
    calls = Calls(access=access)
    for status, fault, refused in (("OK", "", False), ("NotFound", "", True), ("Internal", "INTERNAL", True)):
        calls.end(calls.begin("x/Y", {}, []), status, 0.1, fault=fault, refused=refused)
    assert [line["status"] for line in records(capsys)] == told


@given(st.sampled_from(sorted(TEXTS)), st.text(min_size=1))
def test_a_text_is_shown_hashed_or_held_back(name: str, text: str) -> None:
    def shown(consent: Any) -> Any:  # noqa: ANN401
        return redaction(consent)(None, "info", {"event": "x", name: text})[name]

    assert shown("text") == text
    assert shown("hash").startswith("sha256:")
    assert shown("nothing") == WITHHELD


def test_the_journals_consent_is_the_most_that_logs_have(capsys: pytest.CaptureFixture[str]) -> None:
    configured(log={"questions": "text"}, journal={"questions": "hash"})
    structlog.get_logger("test").info("asked", question=WORDS)
    assert records(capsys)[0]["question"].startswith("sha256:")
    assert stricter("text", "nothing") == "nothing"
    assert stricter("text", "text") == "text"


@pytest.mark.parametrize(
    "value",
    [
        f"the server said: {KEY} is wrong", {"inner": [f"x {KEY}"]}, ValueError(KEY),
        "Authorization: Bearer abcdefghijklmnop", "pm_0123456789ab_" + "s" * 43, "postgresql://me:hushhush@host/db",
        "sk-abcdefghijklmnopqrstuv",
    ],
)  # fmt: skip
def test_a_secret_is_found_wherever_it_stands(value: object) -> None:
    record = redaction("text", (KEY,))(None, "warning", {"event": f"about {KEY}", "told": value})
    for secret in (KEY, "abcdefghijklmnop", "s" * 43, "hushhush"):
        assert secret not in repr(record)
    assert SECRET in repr(record["told"])


def test_every_secret_of_the_settings_is_known() -> None:
    settings = load_settings(
        llm={"api_key": "key-of-the-model"},
        database={"url": "postgresql://me:word@host/db"},
        traces={"headers": {"authorization": "Basic of-the-collector"}},
        tables={"wiki": {"url": "postgresql://other:word@host/wiki"}},
    )
    assert set(secrets_of(settings)) == {
        "key-of-the-model", "postgresql://me:word@host/db", "Basic of-the-collector",
        "postgresql://other:word@host/wiki",
    }  # fmt: skip


def raised() -> None:
    try:
        raise RuntimeError(f"row ({WORDS}) violates a constraint")
    except RuntimeError as error:
        raise NotFound("no run 'x'") from error


def test_within_a_call_an_exception_is_told_without_its_message_unless_texts_are_allowed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = structlog.get_logger("test")
    for questions in ("nothing", "text"):
        configured(log={"questions": questions})
        calls = Calls()
        call = calls.begin("x/Y", {}, [])
        try:
            raised()
        except NotFound:
            log.exception("call failed")
        calls.end(call, "Unknown", 0.1)
    held_back, told = records(capsys)
    assert WORDS not in json.dumps(held_back)
    assert "RuntimeError: [withheld]" in held_back["exception"]
    assert "no run 'x'" in held_back["exception"]  # our own errors hold no texts
    assert "in raised" in held_back["exception"]
    assert WORDS in told["exception"]


def test_records_of_libraries_take_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    configured(llm={"api_key": KEY})
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("some.library").warning("it said %s", KEY, exc_info=True)
    (record,) = records(capsys)
    assert record["event"] == f"it said {SECRET}"
    assert record["level"] == "warning"
    assert record["logger"] == "some.library"
    assert "ValueError: no" in record["exception"]


def test_no_value_can_forge_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    configured(log={"format": "console"})
    structlog.get_logger("test").info("x", path="a\nlevel=error fake")
    assert len(capsys.readouterr().err.splitlines()) == 1
