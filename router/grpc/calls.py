"""What a handler knows of its call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from grpc import aio

Context: TypeAlias = "aio.ServicerContext[Any, Any]"
"""The context of any call."""
