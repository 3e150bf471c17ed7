"""What `turingas run` does and prints: the launch, what came of it, counters beside the source."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import click
import numpy as np

from turingas.argument_text import argument
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel
from turingas.emulate.device import Device
from turingas.emulate.errors import DeviceError
from turingas.emulate.report import Report
from turingas.errors import LaunchError
from turingas.isa.banks import walk
from turingas.isa.instruction import Instruction, instruction
from turingas.isa.isa import instruction_set

SHOWN = 8  # values of an array that are printed


@dataclass
class Outcome:
    """A run and what to print of it. ``error`` is what the kernel did wrong; ``saved`` the arrays to write."""

    report: Report
    args: list[Any]
    before: list[Any]
    saved: list[tuple[str, Any]]
    error: str = ""

    @property
    def failed(self) -> bool:
        """Whether the exit code is 1."""
        return bool(self.error or self.report.hazards or self.report.races)

    def lines(self) -> Iterator[str]:
        """The text for people."""
        report = self.report
        yield from report.printed.splitlines()
        yield summary(report)
        if not self.error:
            yield from results(self.args, self.before)
        yield from map(str, [*report.hazards, *report.races])
        if report.counters is not None:
            yield ""
            yield from table(report)

    def json(self) -> dict[str, Any]:
        """The same for programs."""
        found = as_json(self.report)
        found["error"] = self.error
        found["arrays"] = [] if self.error else list(arrays(self.args, self.before))
        return found


def run(
    cubin: Cubin,
    texts: Sequence[str],
    grid: Sequence[int],
    block: Sequence[int],
    save: Sequence[str],
    seed: int,
    show_progress: bool,
    options: dict[str, Any],
) -> Outcome:
    """Parse the arguments and launch. LaunchError for what cannot be launched; what the kernel does wrong is part of
    the outcome, and then nothing is saved."""
    random = np.random.default_rng(seed)
    args = [argument(text, random) for text in texts]
    files = [_destination(text, args) for text in save]
    before = [value.copy() if isinstance(value, np.ndarray) else value for value in args]
    chosen = {name: value for name, value in options.items() if value is not None}
    kernel, shared = chosen.pop("kernel", None), chosen.pop("shared", 0)
    device = Device(cubin.arch, written=chosen.get("written", False))
    bar = Bar() if show_progress else None
    error = ""
    try:
        report = device.load(cubin).launch(kernel, grid, block, args, shared, bar, **chosen)
    except DeviceError as wrong:
        if wrong.report is None:
            raise LaunchError(str(wrong)) from None
        report, error, files = wrong.report, str(wrong), []
    finally:
        if bar is not None:
            bar.close()
    return Outcome(report, args, before, [(path, args[number]) for number, path in files], error)


def _destination(text: str, args: list[Any]) -> tuple[int, str]:
    number, equals, path = text.partition("=")
    if not equals or not number.isdecimal() or not path:
        raise LaunchError(f"--save {text}: write the number of an argument and a file, such as 1=out.npy")
    if int(number) >= len(args) or not isinstance(args[int(number)], np.ndarray):
        why = "is not an array" if int(number) < len(args) else f"is out of range: there are 0 to {len(args) - 1}"
        raise LaunchError(f"--save {text}: argument {number} {why}")
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):  # said before a run that may take long
        raise LaunchError(f"--save {text}: there is no folder {os.path.dirname(path)}")
    return int(number), path


def save(stream: BinaryIO, array: Any) -> None:
    """Write an array as numpy.save does."""
    np.save(stream, array, allow_pickle=False)


class Bar:
    """A progress bar on stderr, for runs that take longer than a moment."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.done = 0

    def __call__(self, done: int, blocks: int, lane_instructions: int) -> None:
        if self.bar is None:
            self.bar = click.progressbar(length=blocks, label="blocks", file=sys.stderr)
        self.bar.update(done - self.done)
        self.done = done

    def close(self) -> None:
        """End the line."""
        if self.bar is not None:
            self.bar.render_finish()


# ---- what came of it ---------------------------------------------------------------------------------------------


def arrays(args: list[Any], before: list[Any]) -> Iterator[dict[str, Any]]:
    """Of each array argument: its number, type and shape, how many elements the kernel changed, the least and greatest
    value (None without any), how many are NaN, and the first ones. What JSON lacks, NaN and infinity, is a string."""
    for number, (value, old) in enumerate(zip(args, before)):
        if not isinstance(value, np.ndarray):
            continue
        found: dict[str, Any] = {"argument": number, "dtype": value.dtype.name, "shape": list(value.shape)}
        now, then = (np.frombuffer(one.tobytes(), np.uint8).reshape(value.size, -1) for one in (value, old))
        found["changed"] = int((now != then).any(1).sum()) if value.size else 0
        if value.dtype.kind in "iuf":
            nan = np.isnan(value) if value.dtype.kind == "f" else np.zeros(value.shape, bool)
            known = value[~nan]
            found["min"], found["max"] = (_plain(known.min()), _plain(known.max())) if known.size else (None, None)
            found["nan"] = int(nan.sum())
            found["first"] = [_plain(one) for one in value.reshape(-1)[:SHOWN]]
        yield found


def _plain(number: Any) -> int | float | str:
    """A number as JSON has it."""
    value: int | float = number.item()
    return value if math.isfinite(value) else str(value)


def results(args: list[Any], before: list[Any]) -> Iterator[str]:
    """The same as text, a line for each array."""
    for found in arrays(args, before):
        shape = ",".join(map(str, found["shape"]))
        what = "changed" if found["changed"] else "as it was"
        line = f"argument {found['argument']}: {found['dtype']}[{shape}], {what}"
        if found.get("first"):
            real = found["dtype"].startswith("float")
            values = " ".join(f"{float(v):.6g}" if real else str(v) for v in found["first"])
            spread = "all NaN"
            if found["min"] is not None:
                spread = f"{float(found['min']):.6g} to {float(found['max']):.6g}"
                spread += f" ({found['nan']} NaN)" if found["nan"] else ""
            line += f", {spread}: {values}{' ...' if math.prod(found['shape']) > SHOWN else ''}"
        yield line


def summary(report: Report) -> str:
    """One line: what ran and how fast; a short run is all preparation, and has no rate."""
    rate = report.lane_instructions / max(report.seconds, 1e-9) / 1e6
    return (
        f"{report.kernel.name}: {report.instructions:,} warp instructions, {report.lane_instructions:,} of lanes "
        f"in {report.seconds:.2f} s" + (f" ({rate:,.0f} million/s)" if rate >= 1 else "")
    )


HEADER = f"{'address':>7} {'line':>5} {'warps':>10} {'lanes':>5} {'banks':>9} {'shared':>15} {'global':>7}  instruction"
LEGEND = """\
warps   how often a warp ran it                        lanes   active lanes a warp, on average
banks   cycles lost to register-bank conflicts         shared  wavefronts, and those that bank conflicts added
global  32-byte sectors of global memory a request"""


def table(report: Report) -> Iterator[str]:
    """The counters of a run, a line an instruction that ran."""
    counters, kernel = report.counters, report.kernel
    assert counters is not None
    code = _instructions(kernel)
    costs = _bank_cycles(code, kernel)
    yield LEGEND
    yield HEADER
    total = 0
    for n, i in enumerate(code):
        warps = int(counters.warps[n])
        if not warps or i is None:
            continue
        lanes = counters.lanes[n] / warps
        banks = costs[n] * warps
        total += banks
        shared = sectors = ""
        if counters.wavefronts[n]:
            extra = int(counters.wavefronts[n] - counters.ideal[n])
            shared = f"{int(counters.wavefronts[n])}" + (f" (+{extra})" if extra else "")
        elif counters.sectors[n]:
            sectors = f"{counters.sectors[n] / max(int(counters.requests[n]), 1):.1f}"
        line = kernel.lines[n][1] if n < len(kernel.lines) else 0
        yield (
            f"{16 * n:7x} {line or '':>5} {warps:10} {lanes:5.1f} {banks or '':>9} {shared:>15} {sectors:>7}  "
            f"{i.text()}"
        )
    conflicts = int((counters.wavefronts - counters.ideal).sum())
    yield f"shared memory: {int(counters.wavefronts.sum())} wavefronts, {conflicts} of them conflicts; " \
          f"global memory: {int(counters.sectors.sum())} sectors; register banks: {total} cycles"  # fmt: skip


def _instructions(kernel: Kernel) -> list[Instruction | None]:
    known = instruction_set(kernel.arch)
    return [instruction(known, word, 16 * n) for n, word in enumerate(kernel.words)]


def _bank_cycles(code: list[Instruction | None], kernel: Kernel) -> list[int]:
    """Cycles that each instruction loses to register banks when it runs once, in the order of the code."""
    costs = [0] * len(code)
    for i, _, cycles in walk(code, kernel.facts):
        costs[i.address // 16] = cycles
    return costs


def as_json(report: Report) -> dict[str, Any]:
    """The same for programs: totals, counters by address, races and hazards as text."""
    found: dict[str, Any] = {
        "kernel": report.kernel.name,
        "arch": report.kernel.arch,
        "seconds": report.seconds,
        "warp_instructions": report.instructions,
        "lane_instructions": report.lane_instructions,
        "printed": report.printed,
        "races": [str(race) for race in report.races],
        "hazards": [str(hazard) for hazard in report.hazards],
    }
    counters = report.counters
    if counters is not None:
        rows = []
        code = _instructions(report.kernel)
        costs = _bank_cycles(code, report.kernel)
        for n, i in enumerate(code):
            if i is None or not counters.warps[n]:
                continue
            line = report.kernel.lines[n] if n < len(report.kernel.lines) else ("", 0)
            rows.append({
                "address": 16 * n, "file": line[0], "line": line[1], "text": i.text(),
                "register_bank_cycles": int(costs[n] * counters.warps[n]),
                **{name: int(getattr(counters, name)[n]) for name in
                   ("warps", "lanes", "requests", "wavefronts", "ideal", "sectors")},
            })  # fmt: skip
        found["counters"] = rows
    return found
