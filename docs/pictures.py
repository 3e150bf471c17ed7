"""Pictures of the site: what control codes do, computed from real instructions and the tables that the linter uses.

A picture is a function that gives the text of an SVG file; docs/made.py puts it into the site as pictures/NAME.svg.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from xml.sax.saxutils import escape

import turingas
from turingas.flow.graph import Graph
from turingas.isa import banks, control
from turingas.isa.arch import WORD_BYTES
from turingas.isa.arch import arch as facts
from turingas.isa.instruction import Instruction, Label, instruction
from turingas.isa.isa import instruction_set
from turingas.isa.latency import latencies
from turingas.scheduler.depends import EXPECTED, expected
from turingas.scheduler.pipeline import issued

ARCH = "sm_90"  # of all examples: an FFMA issues every cycle

INK, PALE, LINE = "#1f2328", "#59636e", "#c8ced6"
BLUE, BLUE2, GREEN, GREEN2 = "#2f6fdb", "#d5e3fb", "#1a7f4b", "#d3efdf"
RED, RED2, SAND, VIOLET = "#c2322d", "#fadbd8", "#f4e3bd", "#7a49c4"
MONO, SANS = "ui-monospace, Menlo, Consolas, monospace", "system-ui, Helvetica, Arial, sans-serif"


class Svg:
    """Shapes from the top left corner, in pixels. ``text()`` of the whole is the file."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def box(self, x: float, y: float, w: float, h: float, fill: str, edge: str = "none") -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="2" fill="{fill}" stroke="{edge}"/>'
        )

    def line(self, x: float, y: float, x2: float, y2: float, edge: str = LINE, width: float = 1) -> None:
        self.parts.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{x2:g}" y2="{y2:g}" stroke="{edge}" stroke-width="{width:g}"/>'
        )

    def dot(self, x: float, y: float, fill: str) -> None:
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="{fill}"/>')

    def arrow(self, x: float, y: float, y2: float, edge: str) -> None:
        """Down from (x, y) to (x, y2), where the point is."""
        self.line(x, y, x, y2 - 5, edge, 1.5)
        self.parts.append(f'<path d="M{x - 4:g} {y2 - 6:g}h8l-4 6z" fill="{edge}"/>')

    def write(
        self, x: float, y: float, text: str, size: float = 13, fill: str = INK, anchor: str = "start",
        mono: bool = False, bold: bool = False,
    ) -> None:  # fmt: skip
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{fill}" text-anchor="{anchor}"'
            f' font-family="{MONO if mono else SANS}" xml:space="preserve"{weight}>{escape(text)}</text>'
        )

    def text(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}"'
            f' viewBox="0 0 {self.width} {self.height}" role="img">\n<title>{escape(self.title)}</title>\n'
            f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>'
        )
        return "\n".join([head, *self.parts, "</svg>"]) + "\n"


def decoded(source: str) -> list[Instruction]:
    """The instructions of lines of source."""
    isa = instruction_set(ARCH)
    return [i for word in turingas.encode(source, arch=ARCH) if (i := instruction(isa, word)) is not None]


def shown(source: str) -> list[str]:
    """The lines as they are written."""
    return [" ".join(line.split()).rstrip(";") for line in source.splitlines() if line.strip()]


def code_lines(svg: Svg, source: str, x: float, y: float, step: float) -> None:
    for n, line in enumerate(shown(source)):
        code, _, rest = line.partition(" ")
        svg.write(x, y + n * step, code, 12.5, BLUE, mono=True)
        svg.write(x + 112, y + n * step, rest, 12.5, mono=True)


def ruler(svg: Svg, x: float, top: float, bottom: float, cycles: int, cell: float, every: int = 1) -> None:
    """Vertical lines, a cycle each, and their numbers."""
    for n in range(cycles + 1):
        svg.line(x + n * cell, top, x + n * cell, bottom)
        if n % every == 0 and n < cycles:
            svg.write(x + (n + 0.5) * cell, top - 5, str(n), 11, PALE, "middle")
    svg.write(x - 8, top - 5, "cycle", 11, PALE, "end")


# ---- the word ----------------------------------------------------------------------------------------------------

EXAMPLE = "01:-:2:Y:4"


def word() -> str:
    """Where the control code lies in the 128 bits, and what an example sets there."""
    svg = Svg(940, 286, "The 128 bits of an instruction and its control code")
    svg.write(20, 28, "One instruction, 128 bits", 15, bold=True)
    places = [
        (126, 2, "", "#eef0f3"),
        (control.STALL, 21, "control code, reuse", SAND),
        (16, control.STALL - 16, "operands, modifiers, a bit of the opcode", "#eef0f3"),
        (12, 4, "guard", BLUE2),
        (0, 12, "opcode", GREEN2),
    ]
    width = 900 / 128
    for low, count, name, fill in places:
        x = 20 + (128 - low - count) * width
        svg.box(x, 44, count * width, 34, fill, INK)
        svg.write(x + count * width / 2, 65, name, 12 if count > 4 else 9, anchor="middle")
        if name:
            svg.write(x + 2, 92, str(low + count - 1), 10, PALE)
    svg.write(918, 92, "0", 10, PALE, "end")

    bits = control.parse(EXAMPLE)
    parts = [
        ("reuse", control.REUSE, 4, ".reuse of d c b a", "no flag"),
        ("wait", control.WAIT, 6, "mask: wait for scoreboards", "waits for number 0"),
        ("read", control.READ, 3, "set until read", "7: none"),
        ("write", control.WRITE, 3, "set until written", "number 2"),
        ("yield", control.YIELD, 1, "", "clear: Y"),
        ("stall", control.STALL, 4, "cycles", "4 cycles"),
    ]
    cell, top = 42.0, 150
    left = 20 + (126 - control.STALL - 21) * width
    svg.line(20 + 2 * width, 80, left, top - 18, PALE)
    svg.line(20 + 23 * width, 80, left + 21 * cell, top - 18, PALE)
    svg.write(918, 108, f"for example {EXAMPLE}", 12, BLUE, "end", mono=True)
    for name, low, count, meaning, here in parts:
        x = left + (control.STALL + 21 - low - count) * cell
        svg.box(x, top, count * cell, 44, SAND, INK)
        svg.write(x + count * cell / 2, top - 6, name, 13, anchor="middle", bold=True)
        for n in range(count):
            place = low + count - 1 - n
            middle = x + (n + 0.5) * cell
            svg.write(middle, top + 28, str(bits >> place & 1), 16, anchor="middle", mono=True)
            svg.write(middle, top + 58, str(place), 10, PALE, "middle")
            if n:
                svg.line(x + n * cell, top, x + n * cell, top + 44, "#d9c48f")
        svg.write(x + count * cell / 2, top + 80, here, 12, BLUE, "middle")
        svg.write(x + count * cell / 2, top + 100, meaning, 11, PALE, "middle")
    return svg.text()


# ---- stalls ------------------------------------------------------------------------------------------------------

RIGHT = """
--:-:-:-:1  IADD3 R0, R8, R9, RZ;
--:-:-:-:1  FFMA R1, R10, R11, R12;
--:-:-:-:2  FFMA R2, R10, R13, R14;
--:-:-:-:5  IADD3 R3, R0, 0x1, RZ;
--:-:-:Y:5  IMAD R4, R3, R3, RZ;
"""
WRONG = """
--:-:-:-:1  IADD3 R0, R8, R9, RZ;
--:-:-:-:2  IADD3 R3, R0, 0x1, RZ;
--:-:-:Y:5  IMAD R4, R3, R3, RZ;
"""


def dependences(code: list[Instruction]) -> Iterable[tuple[int, int, int]]:
    """Reader, writer before it, cycles that must lie between."""
    rules = latencies(ARCH)
    for n, reader in enumerate(code):
        for read in rules.reads(reader):
            for m in range(n - 1, -1, -1):
                needs = [rules.raw(code[m], write, reader, read) for write in rules.writes(code[m])]
                if any(needs):
                    yield n, m, max(needs)
                    break


def issue_cycles(code: list[Instruction]) -> list[int]:
    """When each is issued, by stall counts alone."""
    at = [0]
    for i in code:
        at.append(at[-1] + i.control.stall)
    return at[:-1]


def stalls() -> str:
    """Stall counts as time: who is issued when, when results are there, who reads them."""
    svg = Svg(940, 400, "Stall counts: when instructions are issued and their results are there")
    cell, x, step = 36.0, 440.0, 30
    top = 62
    for title, source, y in (
        ("Right: the stalls on the way add up to what the reader needs", RIGHT, top),
        ("Wrong: R0 and R3 are read before they are there", WRONG, top + 210),
    ):
        code = decoded(source)
        at, rows = issue_cycles(code), len(code)
        svg.write(20, y - 34, title, 14, RED if source == WRONG else INK, bold=True)
        ruler(svg, x, y, y + rows * step, 13, cell)
        code_lines(svg, source, 20, y + 20, step)
        for n, i in enumerate(code):
            svg.box(x + at[n] * cell, y + n * step + 4, cell, step - 8, BLUE)
            svg.write(x + (at[n] + 0.5) * cell, y + n * step + 20, "issue", 10.5, "#ffffff", "middle")
            if i.control.stall > 1 and n + 1 < rows:
                svg.box(x + (at[n] + 1) * cell, y + n * step + 10, (i.control.stall - 1) * cell, step - 20, SAND)
        for reader, writer, need in dict.fromkeys(dependences(code)):
            there = at[writer] + need
            late = at[reader] < there
            color = RED if late else GREEN
            if late:
                svg.box(x + at[reader] * cell, y + reader * step + 4, cell, step - 8, "none", RED)
            middle, turn = y + writer * step + step / 2, x + (there + 0.15) * cell
            svg.line(x + (at[writer] + 1) * cell, middle, turn, middle, color, 2)
            svg.arrow(turn, middle, y + reader * step + 4, color)
            svg.write(turn + 7, middle + 4, f"there {need} cycles after issue", 11, color)
    svg.box(20, 372, 14, 14, SAND)
    svg.write(40, 384, "the warp stalls; other warps issue meanwhile", 12, PALE)
    svg.write(330, 384, f"Latencies are those of turingas/isa/latency.csv for {ARCH}.", 12, PALE)
    return svg.text()


# ---- scoreboards -------------------------------------------------------------------------------------------------

LOADS = """
--:-:0:-:1  LDG.E R4, [R2];
--:-:0:-:1  LDG.E R5, [R2+0x4];
--:-:1:-:1  LDG.E R6, [R2+0x8];
--:-:-:-:2  IADD3 R8, R8, 0x1, RZ;
02:-:-:-:4  FADD R6, R6, R6;
01:-:-:-:4  FADD R7, R4, R5;
--:2:-:-:2  STG.E [R10], R7;
04:-:-:-:1  MOV R7, RZ;
"""
#: an example of when operands have been read and results are there, in cycles after issue; on a GPU nobody knows
READ_AFTER, THERE_AFTER = 5, {0: 18, 1: 20, 2: 12}


def scoreboards() -> str:
    """Scoreboards as counters: who sets them, when they go back, who waits."""
    code = decoded(LOADS)
    changes: dict[int, list[tuple[float, int]]] = {0: [], 1: [], 2: []}  # scoreboard -> (cycle, +1 or -1)
    at: list[int] = []
    could: list[int] = []  # without waiting
    for n, i in enumerate(code):
        soonest = at[-1] + code[n - 1].control.stall if at else 0
        issue = soonest
        waited = [changes[sb] for sb in changes if i.control.wait >> sb & 1]
        while any(sum(by for cycle, by in moves if cycle <= issue) for moves in waited):
            issue += 1
        at.append(issue)
        could.append(soonest)
        for sb, after in ((i.control.write, THERE_AFTER.get(n, 0)), (i.control.read, READ_AFTER)):
            if sb != control.NONE:
                changes[sb] += [(issue + 1, 1), (issue + after, -1)]
    cell, x, step, top, cycles = 14.0, 440.0, 28, 66, 34
    rows = len(code)
    svg = Svg(940, 506, "Scoreboards: counters that loads and stores set and others wait for")
    svg.write(20, 28, "Two loads share scoreboard 0, a third has number 1, a store's operands number 2", 14, bold=True)
    ruler(svg, x, top, top + rows * step + 130, cycles, cell, 4)
    code_lines(svg, LOADS, 20, top + 19, step)
    for n, i in enumerate(code):
        y = top + n * step
        if at[n] > could[n]:
            svg.box(x + could[n] * cell, y + 9, (at[n] - could[n]) * cell, step - 18, RED2)
            svg.write(x + (could[n] + at[n]) / 2 * cell, y + 18, "waits", 10.5, RED, "middle")
        svg.box(x + at[n] * cell, y + 4, cell, step - 8, BLUE)
        end = at[n] + (THERE_AFTER.get(n, 0) if i.control.write != control.NONE else READ_AFTER)
        if (i.control.write, i.control.read) != (control.NONE, control.NONE):
            svg.line(x + (at[n] + 1) * cell, y + step / 2, x + end * cell, y + step / 2, GREEN, 2)
            svg.dot(x + end * cell, y + step / 2, GREEN)
            what = "result is there" if i.control.write != control.NONE else "read"
            svg.write(x + end * cell + 8, y + step / 2 + 4, what, 11, GREEN)
    base = top + rows * step + 16
    for sb, moves in changes.items():
        y = base + 42 * sb + 26
        svg.write(x - 12, y - 4, f"scoreboard {sb}", 12.5, anchor="end", bold=True)
        count = 0
        for cycle in range(cycles):
            count += sum(by for when, by in moves if when == cycle)
            height = 11 * count
            if count:
                svg.box(x + cycle * cell, y - height, cell, height, SAND)
                svg.write(x + (cycle + 0.5) * cell, y - 2, str(count), 10, INK, "middle")
        svg.line(x, y, x + cycles * cell, y, INK)
    svg.write(20, 440, "A scoreboard counts from the cycle after issue on,", 12, PALE)
    svg.write(20, 456, "down when a result is there or operands are read.", 12, PALE)
    svg.write(20, 472, "A wait holds until the count is zero. When results", 12, PALE)
    svg.write(20, 488, "come is an example: on a GPU nobody knows.", 12, PALE)
    return svg.text()


# ---- reuse -------------------------------------------------------------------------------------------------------


def product(flags: bool) -> str:
    """An outer product of 4 by 2, down a column and up the next; c and a of a row in opposite banks."""
    order = [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (2, 1), (1, 1), (0, 1)]
    lines = []
    for (i, j), (i2, j2) in zip(order, [*order[1:], (-1, -1)]):
        keep = [".reuse" if flags and same else "" for same in (i == i2, j == j2)]
        c = 8 * j + (i ^ 1)
        lines.append(f"--:-:-:-:1  FFMA R{c}, R{64 + i}{keep[0]}, R{80 + j}{keep[1]}, R{c};")
    return "\n".join(lines)


def reuse() -> str:
    """What each FFMA reads from the banks, and what it finds in the reuse cache."""
    svg = Svg(940, 606, "The reuse cache and the two banks of registers")
    step = 28
    for title, source, top in (
        ("With .reuse: two reads an instruction, one in each bank", product(True), 64),
        ("Without: three reads, and a bank gives one register a cycle", product(False), 340),
    ):
        code = decoded(source)
        lost = 0
        svg.write(20, top - 36, title, 14, bold=True)
        for x, name in ((490, "even bank"), (610, "odd bank"), (730, "from the cache"), (850, "cycles lost")):
            svg.write(x, top - 8, name, 12, PALE)
        code_lines(svg, source, 20, top + 18, step)
        for n, (i, cache, cycles) in enumerate(banks.walk(code, facts(ARCH))):
            y = top + n * step
            svg.line(20, y, 920, y)
            read = banks.reads(i, cache)
            for bank, x in ((0, 490), (1, 610)):
                for m, number in enumerate([r for r in read if r % 2 == bank]):
                    svg.box(x + 46 * m, y + 4, 42, 20, (BLUE2, GREEN2)[bank], (BLUE, GREEN)[bank])
                    svg.write(x + 46 * m + 21, y + 18, f"R{number}", 12, anchor="middle", mono=True)
            kept = [number for _, number, _ in banks.sources(i) if number not in read]
            for m, number in enumerate(kept):
                svg.box(730 + 46 * m, y + 4, 42, 20, SAND, VIOLET)
                svg.write(751 + 46 * m, y + 18, f"R{number}", 12, anchor="middle", mono=True)
            if cycles:
                svg.box(850, y + 4, 24, 20, RED2, RED)
                svg.write(862, y + 18, str(cycles), 12, RED, "middle")
            lost += cycles
        svg.write(920, top - 36, f"{lost} cycles lost", 12, RED if lost else GREEN, "end")
    model = "an instruction reads within three cycles, one register of a bank a cycle; the first finds an empty cache."
    svg.write(20, 594, f"By the linter's model for {ARCH}: {model}", 12, PALE)
    return svg.text()


# ---- yield -------------------------------------------------------------------------------------------------------


def two_warps(yields: int, cycles: int) -> list[str]:
    """Who has the issue slot, cycle by cycle: A, B or "" for a cycle lost to a switch. Both warps run twelve FFMA, each
    ``yields``-th of which yields (0: none), and an IADD3 that stalls for 5 cycles, again and again."""
    body = [(1, bool(yields) and n % yields == yields - 1) for n in range(12)] + [(5, False)]
    place, ready = {"A": 0, "B": 0}, {"A": 0, "B": 0}
    now, asked = "A", False
    slots: list[str] = []
    while len(slots) < cycles:
        other = "B" if now == "A" else "A"
        if asked and ready[other] <= len(slots):
            slots.append("")  # a switch that is asked for takes a cycle
            now, asked = other, False
            continue
        asked = False
        if ready[now] > len(slots):
            if ready[other] > len(slots):
                slots.append(" ")
                continue
            now = other
        stall, asked = body[place[now] % len(body)]
        place[now] += 1
        ready[now] = len(slots) + stall
        slots.append(now)
    return slots


def yields() -> str:
    """The issue slot of a scheduler with two warps, without and with yields."""
    svg = Svg(940, 300, "Two warps and the yield flag")
    x, cell, cycles = 60.0, 17.0, 50
    for title, every, top in (
        ("- on every FFMA: a warp keeps the slot until it stalls", 0, 66),
        ("Y on every fourth: the other warp comes to its turn sooner, and each switch costs a cycle", 4, 186),
    ):
        slots = two_warps(every, cycles)
        svg.write(20, top - 36, title, 14, bold=True)
        ruler(svg, x, top, top + 56, cycles, cell, 5)
        for row, warp in enumerate("AB"):
            svg.write(20, top + 19 + 28 * row, f"warp {warp}"[-1], 13, bold=True)
            for n, who in enumerate(slots):
                if who == warp:
                    svg.box(x + n * cell + 1, top + 4 + 28 * row, cell - 2, 20, (BLUE, GREEN)[row])
        for n, who in enumerate(slots):
            if who == "":
                svg.box(x + n * cell + 1, top + 4, cell - 2, 48, RED2, RED)
        issued = sum(who in ("A", "B") for who in slots)
        svg.write(x + cycles * cell, top - 22, f"{issued} of {cycles} slots used", 12, PALE, "end")
    rule = "A drawing of the rule in Yan, Wang, Chu 2020, section 5.1.4, and not a measurement"
    svg.write(20, 272, f"{rule}: both warps run twelve FFMA, then an instruction that stalls for 5 cycles.", 12, PALE)
    svg.write(20, 290, "Red: the cycle of a switch that was asked for. The reuse cache is empty afterwards.", 12, PALE)
    return svg.text()


# ---- fragments of a tensor core ------------------------------------------------------------------------------------


def places(matrix: str, lane: int) -> list[tuple[int, int]]:
    """Where the elements that a lane holds of A (16 x 16), B (16 x 8) or C (16 x 8) of HMMA.16816 lie, as (row,
    column): those of A and B two a register, the lower half first; those of C one a register. tests/docs holds it to
    the CPU device."""
    group, pair = lane // 4, 2 * (lane % 4)
    if matrix == "A":
        return [(group + 8 * (n & 1), pair + 8 * (n >> 1) + half) for n in range(4) for half in range(2)]
    if matrix == "B":
        return [(pair + 8 * n + half, group) for n in range(2) for half in range(2)]
    return [(group + 8 * (n >> 1), pair + (n & 1)) for n in range(4)]


def fragments() -> str:
    """Which lane has which elements of the matrices of HMMA.16816.F32 R16, R8, R12, RZ, and in which register."""
    svg = Svg(940, 420, "Fragments of HMMA.16816: which lane has which elements, in which registers")
    svg.write(20, 26, "HMMA.16816.F32 R16, R8, R12, RZ", 14, mono=True)
    fills, cell, top = (BLUE2, GREEN2, SAND, RED2), 22, 82
    for matrix, first, x, columns, rows in (("A", 8, 40, 16, 16), ("B", 12, 480, 8, 16), ("C", 16, 740, 8, 16)):
        size = f"{matrix}, 16 x {columns}" + (", FP32" if matrix == "C" else ", FP16")
        svg.write(x, top - 26, size, 13, bold=True)
        for n in range(0, columns, 2 if matrix != "B" else 1):
            svg.write(x + (n + 0.5) * cell, top - 6, str(n), 10, PALE, "middle")
        for n in range(rows):
            svg.write(x - 6, top + (n + 0.7) * cell * 0.8, str(n), 10, PALE, "end")
        for lane in range(32):
            found = places(matrix, lane)
            for n in range(0, len(found), 2):  # two elements side by side, in B one below the other
                (row, column), high = found[n], cell * 0.8
                wide, tall = (cell, 2 * high) if matrix == "B" else (2 * cell, high)
                svg.box(x + column * cell, top + row * high, wide, tall, fills[n // 2], LINE)
                middle = x + column * cell + wide / 2
                svg.write(middle, top + row * high + tall / 2 + 4, str(lane), 10.5, INK, "middle")
        for n in range({"A": 4, "B": 2, "C": 2}[matrix]):
            register = f"R{first + n}" if matrix != "C" else f"R{first + 2 * n}, R{first + 2 * n + 1}"
            at = x + (n * 74 if matrix != "C" else n * 92)
            svg.box(at, top + 300, 14, 14, fills[n], LINE)
            svg.write(at + 19, top + 312, register, 12, mono=True)
    note = "Numbers in the boxes are lanes; a box is two elements, the lower half of the register first."
    svg.write(20, 412, note, 12, PALE)
    return svg.text()


# ---- codes that are filled in ------------------------------------------------------------------------------------

SCALE = Path(__file__).parents[1] / "kernels_sass" / "learn" / "02_scale.sass"


def loads_and_stores() -> tuple[list[int], list[int]]:
    """The words of that block of a kernel that has most loads: with the codes of somebody who lets each instruction
    wait for the one before it, and with those that are filled in."""
    graph, rules = Graph(turingas.schedule(SCALE, arch=ARCH, keep=False).texts[0]), latencies(ARCH)
    made = max((graph.kernel.words[b.start : b.end] for b in graph.blocks), key=lambda some: len(loads(some)))
    careful, late = "", False  # late: the instruction before sets a scoreboard
    for i in (i for word in made if (i := instruction(graph.isa, word))):
        wait, late = "01" if late else "--", bool(rules.queue(i)) and i.base != "EXIT"
        sets = ("-:0" if i.writes else "0:-") if late else "-:-"
        careful += f"{wait}:{sets}:{'-:2' if late else 'Y:f'}  {i.text()};\n"
    return turingas.encode(careful, arch=ARCH), made


def loads(words: Iterable[int]) -> list[Instruction]:
    isa = instruction_set(ARCH)
    return [i for word in words if (i := instruction(isa, word)) is not None and i.base == "LDG"]


def codes() -> str:
    """A block before and after the scheduler."""
    careful, made = loads_and_stores()
    rules, step, x, cell = latencies(ARCH), 24, 408.0, 0.41
    svg = Svg(940, 120 + 2 * step * len(made) + 60, "A block where everything waits, and with codes that are filled in")
    y = 50.0
    for title, words in (("Codes of somebody who does not count: each waits for the one before it", careful),
                         ("As the scheduler fills them in", made)):  # fmt: skip
        code = [i for word in words if (i := instruction(instruction_set(ARCH), word)) is not None]
        times = issued(code)
        svg.write(20, y - 14, title, 14, bold=True)
        end = times[-1][1] + code[-1].control.stall
        svg.write(x + end * cell + 8, y + len(code) * step - 8, f"{end} cycles", 12, BLUE, bold=True)
        for n, (i, (could, at)) in enumerate(zip(code, times)):
            row = y + n * step
            svg.write(20, row + 16, control.show(words[n]), 12, BLUE, mono=True)
            svg.write(126, row + 16, i.text(), 12, GREEN if rules.queue(i) and i.writes else INK, mono=True)
            svg.box(x + at * cell, row + 7, i.control.stall * cell, step - 13, SAND)
            if at > could:
                svg.box(x + could * cell, row + 9, (at - could) * cell, step - 16, RED2)
                if (at - could) * cell > 40:
                    svg.write(x + (could + at) / 2 * cell, row + 17, "waits", 10.5, RED, "middle")
            if i.control.write != control.NONE:
                there = x + (at + expected(i)) * cell
                svg.line(x + at * cell, row + step / 2, there, row + step / 2, GREEN, 2)
                svg.dot(there, row + step / 2, GREEN)
                svg.write(there + 8, row + step / 2 + 4, f"scoreboard {i.control.write}", 10.5, GREEN)
            svg.box(x + at * cell, row + 4, 3, step - 8, BLUE)
        svg.line(x, y, x, y + len(code) * step, LINE)
        y += len(code) * step + 60
    note = "Blue: issued. Sand: stalls. Green: a load is under way, for as long as one from the L2 is expected to be."
    svg.write(20, svg.height - 16, note, 12, PALE)
    return svg.text()


# ---- another order -----------------------------------------------------------------------------------------------

#: the examples of docs/reordering.md
PAIR = """.arch sm_90
.kernel pair
.param y, f32*
.param x, f32*
    S2R R0, SR_TID.X;
    ULDC.64 UR4, c[0x0][0x208];
    MOV R7, 0x4;
    IMAD.WIDE R2, R0, R7, c[0x0][0x218];
    # the first word
    LDG.E R4, desc[UR4][R2.64];
    FMUL R5, R4, 2;
    # the second one
    LDG.E R8, desc[UR4][R2.64+0x80];
    FFMA R5, R8, 3, R5;
    IMAD.WIDE R6, R0, R7, c[0x0][0x210];
    STG.E desc[UR4][R6.64], R5;
    EXIT;
"""
SUM = """.arch sm_90
.kernel sum
<params>
y, f32*
x, f32*
n, u32
</params>
    S2R R0, SR_TID.X;
    MOV R7, 0x4;
    MOV R8, n;
    MOV R9, RZ;
    IMAD.WIDE R2, R0, R7, x[0];
.schedule pipeline
loop:
    LDG.E R4, [R2];
    FFMA R9, R4, R4, R9;
    IADD3 R2, P1, R2, 0x80, RZ;
    IADD3.X R3, R3, RZ, RZ, P1, !PT;
    IADD3 R8, R8, -0x1, RZ;
    ISETP.NE.AND P0, PT, R8, RZ, PT;
    @P0 BRA loop;
.schedule on
    IMAD.WIDE R6, R0, R7, y[0];
    STG.E [R6], R9;
    EXIT;
"""


def made_of(source: str, reorder: bool) -> list[Instruction]:
    """The instructions of the kernel of a source, up to EXIT."""
    graph = Graph(turingas.schedule(source, reorder=reorder).texts[0])
    return list(itertools.takewhile(lambda i: i.base != "EXIT", (i for i in graph.instructions if i is not None)))


def order() -> str:
    """A block before and after: when each is issued, and how long loads are under way."""
    before, after = made_of(PAIR, False), made_of(PAIR, True)
    step, x, cell = 24, 430.0, 0.74
    svg = Svg(940, 120 + 2 * step * len(before) + 60, "A block in the order that was written, and in a better one")
    y = 50.0
    for title, code in (("As it is written, with codes filled in", before), ("With .schedule reorder", after)):
        times = issued(code)
        svg.write(20, y - 14, title, 14, bold=True)
        end = times[-1][1] + code[-1].control.stall
        svg.write(x + end * cell + 8, y + len(code) * step - 8, f"{end} cycles", 12, BLUE, bold=True)
        for n, (i, (could, at)) in enumerate(zip(code, times)):
            row = y + n * step
            loads = i.base == "LDG"
            svg.write(20, row + 16, i.text(), 12, GREEN if loads else INK, mono=True)
            if at > could + 4:
                svg.box(x + could * cell, row + 9, (at - could) * cell, step - 16, RED2)
                if at > could + 60:
                    svg.write(x + (could + at) / 2 * cell, row + 17, "waits", 10.5, RED, "middle")
            if loads:
                svg.line(x + at * cell, row + step / 2, x + (at + expected(i)) * cell, row + step / 2, GREEN, 2)
                svg.dot(x + (at + expected(i)) * cell, row + step / 2, GREEN)
            svg.box(x + at * cell, row + 4, 4, step - 8, BLUE)
        svg.line(x, y, x, y + len(code) * step, LINE)
        y += len(code) * step + 60
    note = "Blue: issued. Green: a load is under way, here for as long as one from the L2 is expected to be."
    svg.write(20, svg.height - 16, note, 12, PALE)
    return svg.text()


def rounds() -> str:
    """The first rounds of a loop, before and after its rounds overlap."""
    step, x, cell, count, most = 22, 130.0, 0.5, 8, 1560
    svg = Svg(940, 130 + 2 * step * count + 50, "Rounds of a loop one after the other, and overlapping")
    y = 50.0
    for title, source in (("As it is written: .schedule reorder", SUM.replace("pipeline", "reorder")),
                          ("With .schedule pipeline", SUM)):  # fmt: skip
        svg.write(20, y - 14, title, 14, bold=True)
        found = loads_of(source)
        loads = [load for load, _ in found]
        every = (loads[-1] - loads[3]) / (len(loads) - 4)
        for n, (load, use) in enumerate(found[:count]):
            row = y + n * step
            svg.write(x - 12, row + 15, f"round {n}", 12, INK, "end")
            if load > most:
                continue
            there = min(load + EXPECTED["LDG"], most)
            svg.line(x + load * cell, row + step / 2, x + there * cell, row + step / 2, GREEN, 2)
            svg.box(x + load * cell, row + 4, 4, step - 8, BLUE)
            svg.write(x + load * cell + 7, row + 10, "LDG", 9.5, BLUE)
            if use < most:
                svg.box(x + use * cell, row + 4, 4, step - 8, RED)
                svg.write(x + use * cell + 7, row + 10, "FFMA", 9.5, RED)
        svg.write(x + most * cell, y - 14, f"a round every {every:.0f} cycles", 12, BLUE, "end", bold=True)
        svg.line(x, y, x, y + count * step, LINE)
        y += count * step + 60
    note = "Each FFMA waits for the load of its round. Four loads are under way at once, where one was."
    svg.write(20, svg.height - 16, note, 12, PALE)
    return svg.text()


def loads_of(source: str) -> list[tuple[int, int]]:
    """For each round when its LDG and its FFMA are issued."""
    code = made_of(source, False)
    back = next(n for n, i in enumerate(code) if i.base == "BRA")
    label = next(o.address for o in code[back].operands if isinstance(o, Label)) // WORD_BYTES
    run = code[label : back + 1] * 12
    found: list[list[int]] = []
    last: dict[int, int] = {}  # register -> the round whose load has written it
    for i, (_, at) in zip(run, issued(run)):
        if i.base == "LDG":
            last[i.writes[0].first] = len(found)
            found.append([at])
        elif i.base == "FFMA":  # whose load does not come before it is of a round that there is not
            which = next((last[a.first] for a in i.reads if a.file == "R" and a.first in last), None)
            if which is not None:
                found[which].append(at)
    begin = found[0][0]
    return [(one[0] - begin, one[1] - begin) for one in found if len(one) == 2]


PICTURES: dict[str, Callable[[], str]] = {
    "word": word, "stalls": stalls, "scoreboards": scoreboards, "reuse": reuse, "yields": yields,
    "fragments": fragments, "codes": codes, "order": order, "rounds": rounds,
}  # fmt: skip
