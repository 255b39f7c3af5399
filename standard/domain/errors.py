"""Every error that may reach a caller, as one tree.

PointsmanError
 x InvalidInput            INVALID_ARGUMENT    400   a field is wrong; names it
 x NotFound                NOT_FOUND           404
 x AlreadyExists           ALREADY_EXISTS      409
 x FailedPrecondition      FAILED_PRECONDITION 412   the state of the system forbids it (embedder mismatch …)
 x Unauthenticated         UNAUTHENTICATED     401
 x PermissionDenied        PERMISSION_DENIED   403
 x DeadlineExceeded        DEADLINE_EXCEEDED   504
 x Overloaded              RESOURCE_EXHAUSTED  429   a bound was reached; carries when to try again
 x Unavailable             UNAVAILABLE         503   a dependency is away; carries which and when to try again
   x DatabaseUnavailable
   x EmbedderUnavailable
   x LlmUnavailable
   x ClassifierUnavailable
 x Damaged                 INTERNAL            500   an artifact on disk is not what its manifest says

An error knows its gRPC code, its HTTP status and its advice on retrying; the edge maps the tree once
(router.grpc.errors, later router.http.errors). Messages name the thing and the way out, and never hold secrets or text
of documents. Names of the codes: google.rpc.Code.
"""

from __future__ import annotations

from typing import ClassVar


class PointsmanError(Exception):
    """Root of all errors that a caller may see.

    `message` is for people; `reason` is a stable UPPER_SNAKE word for programs (google.rpc.ErrorInfo.reason).
    """

    grpc_code: ClassVar[str] = "INTERNAL"
    http_status: ClassVar[int] = 500
    reason: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_seconds = retry_after_seconds


class InvalidInput(PointsmanError):
    """A value from outside is wrong. `field` is its path in the request (`budget.max_steps`, `filter.and[3]`)."""

    grpc_code = "INVALID_ARGUMENT"
    http_status = 400
    reason = "INVALID_INPUT"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.problem = message


class NotFound(PointsmanError):
    """The named thing does not exist, or the caller may not know that it does."""

    grpc_code = "NOT_FOUND"
    http_status = 404
    reason = "NOT_FOUND"


class AlreadyExists(PointsmanError):
    """The name or id is taken by something else."""

    grpc_code = "ALREADY_EXISTS"
    http_status = 409
    reason = "ALREADY_EXISTS"


class FailedPrecondition(PointsmanError):
    """The request is well formed, but the state of the system forbids it until somebody changes that state."""

    grpc_code = "FAILED_PRECONDITION"
    http_status = 412
    reason = "FAILED_PRECONDITION"


class Unauthenticated(PointsmanError):
    """No valid identity came with the call."""

    grpc_code = "UNAUTHENTICATED"
    http_status = 401
    reason = "UNAUTHENTICATED"


class PermissionDenied(PointsmanError):
    """The identity is known and may not do this."""

    grpc_code = "PERMISSION_DENIED"
    http_status = 403
    reason = "PERMISSION_DENIED"


class DeadlineExceeded(PointsmanError):
    """The caller's deadline passed before there was anything to answer with."""

    grpc_code = "DEADLINE_EXCEEDED"
    http_status = 504
    reason = "DEADLINE_EXCEEDED"


class Overloaded(PointsmanError):
    """A queue, rate or concurrency bound was reached; try again after `retry_after_seconds`."""

    grpc_code = "RESOURCE_EXHAUSTED"
    http_status = 429
    reason = "OVERLOADED"


class Unavailable(PointsmanError):
    """A dependency is away. `dependency` is one of the labels of pointsman_dependency_up."""

    grpc_code = "UNAVAILABLE"
    http_status = 503
    reason = "UNAVAILABLE"
    dependency: ClassVar[str] = "unknown"


class DatabaseUnavailable(Unavailable):
    """PostgreSQL cannot be reached, has no free connection in time, or is shutting down."""

    reason = "DATABASE_UNAVAILABLE"
    dependency = "database"


class EmbedderUnavailable(Unavailable):
    """The embedding backend cannot be reached or answered garbage."""

    reason = "EMBEDDER_UNAVAILABLE"
    dependency = "embedder"


class LlmUnavailable(Unavailable):
    """The LLM server cannot be reached, refuses, hangs or answers garbage.

    `kind` is a label of pointsman_llm_errors_total: connect, timeout, rate_limited, server, refused, cut, malformed; or
    left_alone (it failed repeatedly and was not asked), overloaded (too many calls wait), which are no attempts.
    """

    reason = "LLM_UNAVAILABLE"
    dependency = "llm"

    def __init__(self, message: str, *, kind: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds)
        self.kind = kind


class ClassifierUnavailable(Unavailable):
    """No routing model is loaded (yet); the configured safe route is taken."""

    reason = "CLASSIFIER_UNAVAILABLE"
    dependency = "classifier"


class Damaged(PointsmanError):
    """A shipped or trained artifact does not match its manifest; the message names the file and how to restore it."""

    reason = "DAMAGED_ARTIFACT"
