"""What the wire says of errors."""

from __future__ import annotations

from typing import Any, cast

import grpc
import pytest
from google.rpc import code_pb2

from router.grpc.errors import abort, to_status
from standard.domain.errors import Overloaded


class Aborted(Exception):
    """What grpc raises out of a call that was aborted."""


class Call:
    """A call that remembers how it ended."""

    code: grpc.StatusCode | None = None

    def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    async def abort(self, code: grpc.StatusCode, details: str, trailing: object) -> None:
        del details, trailing
        self.code = code
        raise Aborted


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TimeoutError(), grpc.StatusCode.DEADLINE_EXCEEDED),
        (Overloaded("full", retry_after_seconds=1.5), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (ValueError("secret"), grpc.StatusCode.INTERNAL),
    ],
)
async def test_every_error_has_a_code(error: Exception, code: grpc.StatusCode) -> None:
    call = Call()
    with pytest.raises(Aborted):
        await abort(cast(Any, call), error)
    assert call.code is code


def test_an_error_that_is_not_ours_says_nothing_of_itself() -> None:
    status = to_status(ValueError("a secret, or text of a document"))
    assert status.code == code_pb2.INTERNAL
    assert "secret" not in status.message
