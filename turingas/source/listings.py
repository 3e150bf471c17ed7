"""Listings of cuobjdump -sass and nvdisasm -hex as source: each instruction from its word, which stands in comments.

Line by line: what is said of a line of the source stands in that line of the listing. Only code and what a listing says
of its kernels come along: names, registers (nvdisasm), not parameters, constants or relocations.
"""

from __future__ import annotations

import re

from turingas.errors import AsmError
from turingas.isa.arch import WORD_BYTES
from turingas.isa.isa import instruction_set

LOW = re.compile(r"\s*/\*([0-9a-f]{4,})\*/.*/\* 0x([0-9a-f]{16}) \*/\s*$")
HIGH = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
FUNCTION = re.compile(r"\s*Function : (\S+)|\s*\.section\s+\.text\.([^,\s]+),")
ARCH = re.compile(r"\s*(?:code for |arch = |\.target\s+)(sm_\w+)|.*\bEF_CUDA_SM(\d+)\b")
WORDLESS = re.compile(r"^\s*\.(headerflags|sectioninfo)\b", re.MULTILINE)  # of nvdisasm, and of no source
REGISTERS = re.compile(r'.*"SHI_REGISTERS=(\d+)"')


def is_listing(text: str) -> bool:
    """Whether it holds instructions with their words in comments behind them, or is one where they are missing."""
    if "/* 0x" in text and any(map(LOW.match, text.splitlines())):
        return True
    if ".headerflags" not in text and ".sectioninfo" not in text:  # told sooner than by WORDLESS
        return False
    return WORDLESS.search(text) is not None


def to_source(text: str, arch: str, filename: str = "") -> tuple[str, str]:
    """The source of a listing, of as many lines, and its architecture; ``arch`` is taken where there are several, or
    none is said.

    Raises AsmError where it is of several architectures and not of ``arch``, and where words, or half of one, are
    missing."""
    lines = text.splitlines()
    found = [""] * len(lines)
    functions: list[tuple[str, int, list[tuple[int, int, int]]]] = []  # architecture, line, (line, address, word)
    here = ""
    registers: dict[int, str] = {}  # by function
    waiting: tuple[int, int, int] | None = None  # line, address, lower half
    names: list[str] = []
    for n, line in enumerate(lines):
        if waiting is not None and (high := HIGH.match(line)):
            at, address, low = waiting
            waiting = None
            if not functions:
                names.append("kern")
                functions.append((here, at, []))
            functions[-1][2].append((at, address, int(high[1], 16) << 64 | low))
        elif waiting is not None:
            raise AsmError("the second half of this word is missing", filename, waiting[0] + 1, text=lines[waiting[0]])
        elif match := LOW.match(line):
            waiting = n, int(match[1], 16), int(match[2], 16)
        elif match := FUNCTION.match(line):
            names.append(match[1] or match[2])
            functions.append((here, n, []))
        elif match := ARCH.match(line):
            known = match[1] or f"sm_{match[2]}"
            here = here if match[2] and here.startswith(known) else known  # flags do not tell sm_90 from sm_90a
            if functions and not functions[-1][2] and not functions[-1][0]:
                functions[-1] = (here, *functions[-1][1:])
        elif (match := REGISTERS.match(line)) and functions:
            registers[len(functions) - 1] = match[1]
    if waiting is not None:
        raise AsmError("the second half of this word is missing", filename, waiting[0] + 1, text=lines[waiting[0]])
    if not any(code for _, _, code in functions):
        at = next(n for n, line in enumerate(lines) if WORDLESS.match(line))
        hint = "nvdisasm prints them with -hex (`turingas disassemble` makes a source of a cubin); instructions alone, "
        raise AsmError("this listing of nvdisasm has no words, and its text alone does not say all",
                       filename, at + 1, text=lines[at], hint=hint + "without its directives, are read as source")
    archs = dict.fromkeys(one or arch for one, _, code in functions if code)
    wanted = arch if arch in archs else next(iter(archs))
    if len(archs) > 1 and arch not in archs:
        several = ", ".join(archs)
        raise AsmError(f"this listing is of {several}", filename, hint="choose one with --arch")
    for number, (of, at, code) in enumerate(functions):
        if code and (of or wanted) == wanted:
            _put(found, names[number], at, code, wanted, registers.get(number), filename, lines)
    return "\n".join([*found, ""]), wanted


def _put(
    found: list[str], name: str, at: int, code: list[tuple[int, int, int]], arch: str, registers: str | None,
    filename: str, lines: list[str],
) -> None:  # fmt: skip
    """A function: its head in line ``at``, its instructions in theirs, labels and registers in the lines between."""
    isa = instruction_set(arch)
    words = [word for _, _, word in code]
    for n, (line, address, _) in enumerate(code):
        if address != WORD_BYTES * n:
            message = f"the instruction at {WORD_BYTES * n:#x} is missing"
            raise AsmError(message, filename, line + 1, text=lines[line])
    targets = {isa.target(word, WORD_BYTES * n) for n, word in enumerate(words) if not isa.anywhere[word & 0xFFF]}
    labels = {t: f"L_{t:04x}" for t in targets if t is not None and 0 <= t < WORD_BYTES * len(words) and t % 16 == 0}
    for (line, _, _), text in zip(code, isa.lines(words, 0, True, labels)):
        found[line] = text if text.startswith(".") else text + ";"
    for target, label in labels.items():
        found[code[target // WORD_BYTES][0] - 1] = label + ":"  # where the second half of the word before stands
    if at < code[0][0]:
        found[at] = f".kernel {name}"
        if registers is not None:
            found[at + 1] = f".registers {registers}"
