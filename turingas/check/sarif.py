"""Findings as SARIF 2.1.0 (OASIS), which editors and code-scanning services read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from turingas.check.finding import Finding
from turingas.version import __version__

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(findings: Iterable[Finding]) -> dict[str, Any]:
    """One run of the linter as a SARIF log. ``ruleId`` is the kind of a finding; a region is a line of the source;
    places in the machine code are logical locations, ``kernel+0x0040``."""
    found = list(findings)
    kinds = sorted({finding.kind for finding in found})
    driver = {
        "name": "turingas",
        "version": __version__,
        "rules": [{"id": kind, "shortDescription": {"text": RULES.get(kind, kind)}} for kind in kinds],
    }
    results = [_result(finding, kinds) for finding in found]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(finding: Finding, kinds: Sequence[str]) -> dict[str, Any]:
    text = finding.message + (f" ({finding.hint})" if finding.hint else "")
    result: dict[str, Any] = {
        "ruleId": finding.kind,
        "ruleIndex": kinds.index(finding.kind),
        "level": finding.severity,
        "message": {"text": text},
        "locations": [_location(finding, finding.address, finding.line, finding.text)],
    }
    if finding.other is not None:
        result["relatedLocations"] = [_location(finding, finding.other, finding.other_line, finding.other_text)]
    return result


def _location(finding: Finding, address: int, line: int, text: str) -> dict[str, Any]:
    name = f"{finding.kernel}+0x{address:04x}"
    location: dict[str, Any] = {
        "logicalLocations": [{"name": finding.kernel, "fullyQualifiedName": name, "kind": "function"}]
    }
    if text:
        location["message"] = {"text": text}
    if finding.file:
        physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.file)}}
        if line:
            physical["region"] = {"startLine": line}
        location["physicalLocation"] = physical
    return location


def _uri(file: str) -> str:
    """A path as a URI: relative to the working folder where it lies in it, with / on every system."""
    from urllib.parse import quote

    path = PurePath(file)
    if path.is_absolute():
        try:
            path = path.relative_to(os.getcwd())
        except ValueError:
            return PurePath(file).as_uri()
    return quote(path.as_posix())


#: what each kind of finding is, in a line
RULES = {
    "raw-stall": "A register is read before the cycles have passed that its writer takes",
    "waw-stall": "A register is overwritten before the cycles have passed that its writer takes",
    "war-stall": "A register is overwritten before the cycles have passed that its reader takes to read it",
    "barrier-stall": "An access so soon behind a barrier that the warp is not held yet",
    "raw": "A register is read without a wait for its writer",
    "waw": "A register is overwritten without a wait for its writer",
    "war": "A register is overwritten without a wait for its reader",
    "no-scoreboard": "An instruction of variable latency that sets no scoreboard",
    "missing-scoreboard": "A scoreboard that there is not",
    "no-release": "A scoreboard that its instruction never releases",
    "never-waited": "A scoreboard that nothing waits for",
    "nothing-pending": "A wait for a scoreboard that nothing has set",
    "wait-too-soon": "A wait too soon after its scoreboard is set",
    "bank-conflict": "An instruction reads several registers of one bank",
    "barriers": "Barriers beyond what is declared, or what there is",
    "return-address": "A call that does not return to behind itself",
    "branch-table": "An indirect branch that leads elsewhere than the cubin says",
    "moved-code": "A branch of changed code that may lead anywhere",
    "bad-target": "A branch to where no instruction begins",
    "divergent-barrier": "A barrier that some threads of the block do not reach",
    "no-exit": "Control runs off the end of the code",
    "occupancy": "How many warps fit on an SM",
    "registers": "Registers beyond what is declared, or what there is",
    "reuse-illegal": "A reuse flag that the hardware does not have",
    "reuse-lost": "A reuse flag of an instruction that yields",
    "reuse-stale": "A register that is written between its reuse flag and its next read",
    "reuse-useless": "A reuse flag that saves no read",
    "shared-conflict": "Lanes access different words of one bank of shared memory",
    "shared-memory": "Shared memory beyond what there is",
    "uncoalesced": "Lanes touch more sectors than their bytes fill",
    "unknown-word": "A word that no instruction explains",
    "unreachable": "Code that nothing leads to",
}
