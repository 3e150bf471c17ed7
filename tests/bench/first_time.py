"""What new code costs: ``python -m tests.bench.first_time CUBIN...``.

Microseconds of processor time an instruction for the distinct words that `turingas.throughput` takes, decoded and
encoded in a process that has seen none; again when every operand is known but no line; and when all lines are.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import turingas
from turingas.isa.isa import instruction_set
from turingas.throughput import WORDS, sample

TURNS = 9  # of which the best counts


def main(files: list[str]) -> None:
    """Prints the table."""
    print("us an instruction    new  operands known  lines known")
    for task in ("decode", "encode"):
        command = [sys.executable, "-m", "tests.bench.first_time", f"--{task}", *files]
        turns = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(TURNS)]
        new, operands, lines = [min(map(float, column)) for column in zip(*map(str.split, turns))]
        print(f"{task:17} {new:6.2f} {operands:15.2f} {lines:12.2f}")


def one(task: str, files: list[str]) -> None:
    """One turn, in a process of its own."""
    chosen = [cubin for _, cubin in sample([Path(file) for file in files])]
    words = sorted({word for cubin in chosen for kernel in cubin.texts for word in kernel.code})
    words = random.Random(0).sample(words, min(WORDS, len(words)))
    arch = chosen[0].arch
    turingas.encode("--:-:-:Y:0  NOP", arch)
    isa = instruction_set(arch)

    work: Callable[[], object]
    if task == "decode":
        work = lambda: turingas.decode(words, arch)  # noqa: E731
    else:  # this process must not know the operands
        code = "import sys, turingas; print('\\n'.join(turingas.decode(map(int, sys.stdin), sys.argv[1])), end='')"
        text = subprocess.run([sys.executable, "-c", code, arch], input="\n".join(map(str, words)), capture_output=True,
                              text=True, check=True).stdout  # fmt: skip
        work = lambda: turingas.encode(text, arch)  # noqa: E731
    for forget in (False, True, False):
        if forget:
            isa.lines_seen.clear()
            isa.decoder.exact_seen.clear()
        start = time.process_time()
        work()
        print(f"{1e6 * (time.process_time() - start) / len(words):.3f}")


if __name__ == "__main__":
    if sys.argv[1].startswith("--"):
        one(sys.argv[1][2:], sys.argv[2:])
    else:
        main(sys.argv[1:])
