"""Findings as SARIF 2.1.0 (OASIS), which editors and code-scanning services read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from turingas.check.finding import Finding
from turingas.check.rules import RULES
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
        "rules": [{"id": kind, "shortDescription": {"text": RULES[kind]}} for kind in kinds],
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
