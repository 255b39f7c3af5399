"""Looks at a section that is read as a whole: chunks meet in it, which were scanned one by one."""

from __future__ import annotations

import asyncio

from standard.domain.passage import ScanFinding, Section
from standard.domain.text import UntrustedText
from standard.sandbox.policy import POLICIES, policed
from standard.sandbox.scan import cut_unseen, scan_chunk, shipped_scanner


async def screened_section(passage_id: str, text: str, policy: str) -> Section:
    """Return the section around this passage as it may be shown, and what the scan says of it under `policy`.

    `policy` is a key of standard.sandbox.policy.POLICIES; an unknown one counts as the standard policy. The scan runs
    in a thread.
    """
    return await asyncio.to_thread(_screened, passage_id, text, policy)


def _screened(passage_id: str, text: str, policy: str) -> Section:
    scan = policed(scan_chunk, POLICIES.get(policy, POLICIES["standard"]), shipped_scanner().version)
    said = scan("", text)
    if said.verdict == "pass":
        return Section(UntrustedText(text))
    finding = ScanFinding(passage_id, said.verdict, said.techniques, said.rules_version)
    match said.verdict:
        case "quarantine":
            shown = ""
        case "neutralise":
            shown = cut_unseen(text)
        case _:
            shown = text
    return Section(UntrustedText(shown), finding)
