"""What the gateway asks itself to watch itself is no sign of what people ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.journal.codec import EventCodec
from router.journal.finished import finished_runs
from standard.domain.question import Question
from standard.domain.text import UntrustedText
from tests.integration.router.conftest import fill, running, settings_for

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

WHERE = "Where is the spare bilge pump kept?"


async def test_a_probe_is_answered_and_teaches_nothing(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(settings_for(database_url, tmp_path)) as served:
        await fill(served.client)
        application, noted = served.application, []
        monkeypatch.setattr(type(application.drift), "note", lambda *_: noted.append(1))
        for probe in (True, False):
            asked = Question(UntrustedText(WHERE), request_id=f"probe-{probe}", probe=probe)
            assert (await application.gateway.answer(asked)).text
        runs = finished_runs(application.pool, EventCodec(), retention_days=30.0)
        assert [run.request_id async for run in runs] == ["probe-False"]
        assert len(noted) == 1
