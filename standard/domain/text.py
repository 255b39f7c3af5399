"""Text that came from outside, as a type of its own, so that mypy finds where it would enter a prompt unguarded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UntrustedText:
    """Text of a document, a tool or a user.

    It is deliberately no `str`: it cannot be concatenated or formatted into a prompt by accident. Analysis (scoring,
    chunking, hashing) reads `.raw`; a prompt takes it through `standard.sandbox.render` alone.
    """

    raw: str

    def __str__(self) -> str:
        return f"<untrusted text, {len(self.raw)} code points>"

    def __repr__(self) -> str:
        return f"UntrustedText(<{len(self.raw)} code points>)"

    def __len__(self) -> int:
        return len(self.raw)

    def content_hash(self) -> str:
        """SHA-256 of the UTF-8 bytes, as 64 hex digits; lone surrogates are replaced before hashing."""
        return hashlib.sha256(self.raw.encode("utf-8", "replace")).hexdigest()
