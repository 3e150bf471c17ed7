"""How fast code is handled that does not repeat, in a process that has seen none: `turingas bench assembler` asks.

``python -m turingas.throughput TASK FILE...`` takes cubins of one architecture and prints, as JSON, instructions a
second of processor time (one core). Modules are imported before: a library has 60 million instructions, not 60,000.

* ``decode``, ``encode``: the distinct words of the files, each for the first time;
* ``again``: each cubin read, taken apart into source, and put together again;
* ``lint``: each cubin linted.

Each is measured in processes of its own (``measure``), so that none finds what another has remembered. The tasks take
turns, and the best turn is held against what is wanted: other programs on the machine only add to a fresh process's
processor time (they share caches and cores with it). The median tells what such a machine gives.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from turingas.cubin.cubin import Cubin
from turingas.isa.arch import WORD_BYTES

WORDS = 18_500  # distinct ones, at most
INSTRUCTIONS = 60_000  # of whole cubins, at most
TURNS = 5  # fresh processes for each task
TASKS = ("decode", "encode", "again", "lint")
#: instructions a second that this project wants
TARGETS = {"decode": 300_000, "encode": 200_000, "again": 120_000, "lint": 40_000}

Result = dict[str, int]


def measure(
    files: Sequence[Path],
    environment: Mapping[str, str] | None = None,
    step: Callable[[float], None] = lambda part: None,
) -> dict[str, Result]:
    """Task -> ``instructions``, and how many a second: ``rate``, the best of ``turns`` fresh processes, and ``median``.
    ``step`` is told which part is done. CalledProcessError where one cannot be measured."""
    chosen = [str(path) for path, _ in sample(files)]
    found: dict[str, list[Result]] = {task: [] for task in TASKS}
    for turn in range(TURNS):
        for task in TASKS:
            command = [sys.executable, "-m", "turingas.throughput", task, *chosen]
            made = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
            found[task].append(json.loads(made.stdout))
        step((turn + 1) / TURNS)
    return {task: _summary(turns) for task, turns in found.items()}


def _summary(turns: Sequence[Result]) -> Result:
    rates = [turn["rate"] for turn in turns]
    return {**turns[0], "rate": max(rates), "median": round(statistics.median(rates)), "turns": len(rates)}


def task(name: str, files: Sequence[Path]) -> Result:
    """One task, in this process, which must not have seen code before."""
    import turingas
    import turingas.disassembler
    from turingas.check.lint import lint

    chosen = [cubin for _, cubin in sample(files)]
    if name in ("decode", "encode"):
        arch = chosen[0].arch
        turingas.encode("--:-:-:Y:0  NOP", arch)
        words = sorted({word for cubin in chosen for kernel in cubin.texts for word in kernel.code})
        words = random.Random(0).sample(words, min(WORDS, len(words)))
        if name == "decode":
            return _timed(len(words), lambda: turingas.decode(words, arch))
        # what is encoded was decoded by another process: this one must not know the operands
        command = [sys.executable, "-c", _DECODE, arch]
        text = subprocess.run(command, input=json.dumps(words), capture_output=True, text=True, check=True).stdout
        again: list[int] = []
        result = _timed(len(words), lambda: again.extend(turingas.encode(text, arch)))
        if again != words:
            raise ArithmeticError("what was decoded does not encode to the same words")
        return result
    count = sum(map(_size, chosen))
    data = [cubin.to_bytes() for cubin in chosen]
    work = lint if name == "lint" else _again
    return _timed(count, lambda: [work(one) for one in data])


_DECODE = "import json, sys, turingas; print('\\n'.join(turingas.decode(json.load(sys.stdin), sys.argv[1])), end='')"


def sample(files: Sequence[Path]) -> list[tuple[Path, Cubin]]:
    """Some of the files and their cubins, of ``INSTRUCTIONS`` in all where there are as many; the same ones each time.
    """
    chosen: list[tuple[Path, Cubin]] = []
    room = INSTRUCTIONS
    for path in random.Random(0).sample(sorted(files), len(files)):
        cubin = Cubin.from_file(path)
        size = _size(cubin)
        if size and (size <= room or not chosen):
            chosen.append((path, cubin))
            room -= size
    return chosen


def _size(cubin: Cubin) -> int:
    """How many instructions it holds."""
    return sum(len(kernel.code) for kernel in cubin.texts) // WORD_BYTES


def _timed(count: int, work: Callable[[], object]) -> Result:
    gc.collect()  # a search for garbage that is due already is none of the work's
    start = time.process_time()
    work()
    return {"instructions": count, "rate": round(count / (time.process_time() - start))}


def _again(data: bytes) -> None:
    from turingas import assemble, disassemble

    cubin = Cubin.from_bytes(data)
    assemble(disassemble(cubin), arch=cubin.arch).to_bytes()


if __name__ == "__main__":
    print(json.dumps(task(sys.argv[1], [Path(one) for one in sys.argv[2:]])))
