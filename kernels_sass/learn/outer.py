"""The outer product of steps 5, 7 and 8: c(i, j) += a(i) * b(j), as FFMA that have no register-bank conflict.

``.include "outer.py"`` runs this file in the namespace of the source's inline Python. ARCH is the architecture.
"""

from turingas.isa.instruction import instruction
from turingas.isa.isa import instruction_set
from turingas.isa.latency import latencies

ISA = instruction_set(ARCH)
# An FFMA keeps its pipe for two cycles where 16 lanes work for a scheduler, and for one where there are 32.
STALL = latencies(ARCH).issue(instruction(ISA, ISA.encode("FFMA R0, R0, R0, R0", 0, {})))


def serpentine(rows, columns):
    """Down the first column, up the second: from one step to the next only one of i and j changes, at a turn too."""
    return [(i if j % 2 == 0 else rows - 1 - i, j) for j in range(columns) for i in range(rows)]


def outer(c, a, b, rows=8, columns=8, times=1, reuse="ab"):
    """FFMA without control codes. ``c(i, j)``, ``a(i)``, ``b(j)`` name registers; ``reuse``: which of a and b may stay
    in the reuse cache when the next FFMA reads the same register in the same place."""
    steps = serpentine(rows, columns) * times
    lines = []
    for (i, j), (next_i, next_j) in zip(steps, steps[1:] + [(None, None)]):
        keep_a = ".reuse" if "a" in reuse and i == next_i else ""
        keep_b = ".reuse" if "b" in reuse and j == next_j else ""
        lines.append(f"FFMA {c(i, j)}, {a(i)}{keep_a}, {b(j)}{keep_b}, {c(i, j)};")
    return lines


def every(text):
    """What YIELD= says: 0 for 'natural' (never), n for 'every:n'."""
    if text == "natural":
        return 0
    kind, _, number = str(text).partition(":")
    if kind != "every" or not number.isdecimal() or int(number) < 1:
        raise ValueError(f"YIELD={text}: there are natural and every:N with N from 1 on")
    return int(number)


def coded(lines, yields=0):
    """The lines with control codes. Every ``yields``-th lets another warp go first; the reuse cache is lost then."""
    for n, line in enumerate(lines):
        if yields and n % yields == 0:
            yield f"--:-:-:Y:2   {line.replace('.reuse', '')}"
        else:
            yield f"--:-:-:-:{STALL}   {line}"
