"""Runs the linter over libraries of compiled code: ``python -m tests.tools.lint_libraries PATH ...``.

A path is a cubin, a shared library or a wheel of one, or a folder of these. Code that ships and works should have no
error and no warning; what has one is named. Cubins are taken in an order that is drawn by a hash of their names,
kernels are drawn by a hash of theirs (``--share``), and each code is looked at once: two runs look at the same.

``--instructions`` ends the run after so many. ``--log FILE`` writes a line of JSON for each kernel and each file that
was checked, and a run whose log is there goes on where that one ended; ``--show`` only says what a log holds, and
``--again`` looks again at what had a finding or differed.
``--check SHARE`` also takes that part of the files apart and puts them together again, as ``turingas check`` does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.tools.corpus import Source, share, sources
from turingas.check.lint import lint_kernel
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel
from turingas.disassembler import check
from turingas.errors import AsmError, CubinError

EXAMPLES = 3  # of each kind

Row = dict[str, Any]


def _bad(row: Row) -> bool:
    return bool(row.get("findings") or row.get("differs") or "unread" in row)


def digest(kernel: Kernel) -> str:
    """What tells two kernels apart: their architecture and their code."""
    return hashlib.sha1(kernel.arch.encode() + bytes(kernel.code.data)).hexdigest()


class Log:
    """What was done: rows, of this run and, with a file, of those before it."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.rows: list[Row] = []
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                self.rows.append(json.loads(line))
        self._count()

    def _count(self) -> None:
        self.done = {row["sha1"] for row in self.rows}
        self.instructions = sum(row.get("instructions", 0) for row in self.rows)

    def again(self) -> set[str]:
        """Forgets what had a finding, differed or was not read; the names of its sources."""
        left = [row for row in self.rows if not _bad(row)]
        names = {row["source"] for row in self.rows if _bad(row)}
        if self.path is not None:
            self.path.write_text("".join(json.dumps(row) + "\n" for row in left))
        self.rows = left
        self._count()
        return names

    def add(self, **row: Any) -> None:
        self.rows.append(row)
        self.done.add(row["sha1"])
        self.instructions += row.get("instructions", 0)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def bad(self) -> bool:
        """Whether anything is left to be followed."""
        return any(map(_bad, self.rows))

    def __str__(self) -> str:
        kernels = [row for row in self.rows if "kernel" in row]
        seconds = sum(row["seconds"] for row in kernels)
        rate = self.instructions / seconds if seconds else 0
        lines = [f"{len(kernels):,} kernels, {self.instructions:,} instructions ({rate:,.0f} a second), "
                 f"the longest {max((row['instructions'] for row in kernels), default=0):,}"]  # fmt: skip
        for what in ("arch", "library"):
            counts: Counter[str] = Counter()
            for row in kernels:
                counts[row[what]] += row["instructions"]
            lines.append(", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())))
        found: Counter[tuple[str, str]] = Counter()
        with_one: Counter[tuple[str, str]] = Counter()
        examples: dict[tuple[str, str], list[str]] = {}
        for row in kernels:
            for severity, kind, text in row["findings"]:
                found[severity, kind] += 1
                examples.setdefault((severity, kind), []).append(f"{row['source']}: {row['arch']}: {text}")
            with_one.update({(severity, kind) for severity, kind, _ in row["findings"]})
        for severity in ("error", "warning"):
            kinds = [(kind, count) for (one, kind), count in found.most_common() if one == severity]
            lines.append(f"{severity}s: {sum(count for _, count in kinds):,}")
            lines += [f"  {kind:20} {count:7,} in {with_one[severity, kind]:,} kernels" for kind, count in kinds]
        checked = [row for row in self.rows if "differs" in row]
        if checked:
            different = [row for row in checked if row["differs"]]
            lines.append(f"taken apart and put together again: {len(checked):,} files, {len(different):,} differ")
            lines += [f"not the same: {row['source']}: {row['differs'][0]} ({len(row['differs'])} in all)"
                      for row in different]  # fmt: skip
        lines += [f"cannot be read: {row['source']}: {row['unread']}" for row in self.rows if "unread" in row]
        for texts in examples.values():
            lines += texts[:EXAMPLES]
        return "\n".join(lines)


def look(
    found: Iterable[Source], log: Log, part: float = 1.0, largest: int = 1 << 30, archs: Iterable[str] = (),
    to_check: float = 0.0, most: int = 1 << 60,
) -> None:  # fmt: skip
    """Lints ``part`` (0 to 1) of the kernels, at most ``largest`` instructions long, each code once, until ``most``
    instructions are done; takes apart ``to_check`` (0 to 1) of the files and puts them together again."""
    archs = set(archs)
    for source in found:
        if log.instructions >= most:
            return
        try:
            data = source.read()
            cubin = Cubin.from_bytes(data)
        except (AsmError, CubinError) as error:
            log.add(sha1=f"unread {source.name}", source=source.name, unread=str(error))
            continue
        if archs and cubin.arch not in archs:
            continue
        for kernel in cubin.texts:
            sha1 = digest(kernel)
            if share(f"{kernel.arch} {kernel.name}") >= part or len(kernel.words) > largest or sha1 in log.done:
                continue
            start = time.process_time()
            findings = [[f.severity, f.kind, str(f)] for f in lint_kernel(kernel) if f.severity != "note"]
            seconds = round(time.process_time() - start, 3)
            log.add(sha1=sha1, source=source.name, library=source.library, kernel=kernel.name, arch=kernel.arch,
                    instructions=len(kernel.words), seconds=seconds, findings=findings)  # fmt: skip
        if share(f"check {source.name}") < to_check:
            sha1 = f"check {hashlib.sha1(data).hexdigest()}"
            if sha1 not in log.done:
                log.add(sha1=sha1, source=source.name, library=source.library, arch=cubin.arch, differs=check(cubin))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--share", type=float, default=1.0, help="of the kernels, 0 to 1")
    parser.add_argument("--largest", type=int, default=1 << 30, help="instructions of a kernel; no limit by default")
    parser.add_argument("--instructions", type=int, default=1 << 60, help="ends after so many, those in the log too")
    parser.add_argument("--check", type=float, default=0.0, metavar="SHARE", help="of the files, 0 to 1")
    parser.add_argument("--arch", action="append", default=[])
    parser.add_argument("--log", type=Path)
    parser.add_argument("--show", action="store_true", help="only say what the log holds")
    parser.add_argument("--again", action="store_true", help="what the log says had a finding, and nothing else")
    options = parser.parse_args()
    log = Log(options.log)
    if not options.show:
        with tempfile.TemporaryDirectory() as folder:
            found = sources(options.paths, Path(folder))
            if options.again:
                names = log.again()
                found = [source for source in found if source.name in names]
            look(found, log, options.share, options.largest, options.arch,
                 options.check, options.instructions)  # fmt: skip
    print(log)
    return int(log.bad())


if __name__ == "__main__":
    sys.exit(main())
