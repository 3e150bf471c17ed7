"""Enumerate PTX instruction forms, let ptxas assemble those it accepts, and keep the cubins as words to test with.

The table (ptx_table.txt) holds one template a line: `<a|b>` are alternatives (all combinations are made), `$x` is a
source operand, `$=x` a destination, `$+x` both, `$x*4` four of them with commas between. x tells the kind:

    h r l q     16, 32, 64, 128 bits         p   predicate
    f d         float, double                u   32 bits, a logical operand (no negated variant)
    k e m b     half, half2, bfloat16, bfloat162
    G S A L C   address: global, shared, generic, local, constant      T   a texture, sampler or surface handle
    M           address of an mbarrier in shared memory

A template is tried in several variants, for SASS writes one PTX instruction differently according to where its sources
live: registers, immediates, kernel parameters (the constant bank), uniform values, negated and absolute ones. A line
that starts with `!` is tried as it stands only; `[sm_80]` on a line of its own sets the first architecture of what
follows. Several instructions may stand on a line.

    python -m tests.tools.ptx_forms OUT_FOLDER sm_75 sm_90a ...     # writes OUT_FOLDER/ARCH/forms_N.cubin and a count
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.tools.ptxas import PtxasError, assemble_ptx

TABLE = Path(__file__).with_name("ptx_table.txt")
OPERAND = re.compile(r"\$([=+]?)([a-zA-Z])(?:\*(\d+))?")
CHOICE = re.compile(r"<([^<>]*)>")
# kind of operand: register, an immediate, how it is negated, its absolute value
KINDS = {
    "h": ("b16", "123", None, None),
    "r": ("b32", "-74565", "neg.s32", "abs.s32"),
    "u": ("b32", "0x12345", "not.b32", None),
    "l": ("b64", "0x12345", "neg.s64", None),
    "q": ("b128", None, None, None),
    "f": ("f32", "0f3FC00000", "neg.f32", "abs.f32"),
    "d": ("f64", "0d3FF8000000000000", "neg.f64", "abs.f64"),
    "k": ("b16", "0x3c01", "neg.f16", "abs.f16"),
    "e": ("b32", "0x3c003c01", "neg.f16x2", "abs.f16x2"),
    "m": ("b16", "0x3c01", "neg.bf16", "abs.bf16"),
    "b": ("b32", "0x3c003c01", "neg.bf16x2", "abs.bf16x2"),
    "p": ("pred", None, "not.pred", None),
    **dict.fromkeys("GAT", ("b64", None, None, None)),
    **dict.fromkeys("SLCM", ("b32", None, None, None)),
}
REGISTER = {kind: row[0] for kind, row in KINDS.items()}
IMMEDIATE = {kind: row[1] for kind, row in KINDS.items() if row[1]}
NEGATE = {kind: row[2] for kind, row in KINDS.items() if row[2]}
ABSOLUTE = {kind: row[3] for kind, row in KINDS.items() if row[3]}
ADDRESSES = "GSALCM"
BAR = "\0"  # stands for a bar inside a choice, written \\|


@dataclass(frozen=True)
class Form:
    """One template with its choices made, and the first architecture that has it."""

    text: str
    arch: str
    plain: bool  # no variants


def order(arch: str) -> tuple[int, str]:
    """Sort key of an architecture: sm_90a comes after sm_90."""
    match = re.fullmatch(r"sm_(\d+)(\w*)", arch)
    assert match, arch
    return int(match[1]), match[2]


def choose(text: str) -> Iterator[str]:
    """Yield the text with each of its choices made, innermost first."""
    if match := CHOICE.search(text):
        for part in match[1].split("|"):
            yield from choose(text[: match.start()] + part + text[match.end() :])
    else:
        yield text


def read_table(text: str) -> Iterator[Form]:
    """Yield every form of the table."""
    arch = "sm_70"
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if match := re.fullmatch(r"\[(sm_\w+)\]", line):
            arch = match[1]
            continue
        plain = line.startswith("!")
        for text in choose(line.lstrip("!").strip().replace(r"\|", BAR)):
            yield Form(text.replace(BAR, "|"), arch, plain)


def variants(form: Form) -> Iterator[tuple[str, ...]]:
    """Yield how each source of a form is supplied, one tuple a variant."""
    kinds = [m[2] for m in OPERAND.finditer(form.text) if not m[1]]
    base = ("reg",) * len(kinds)
    yield base
    if form.plain or not kinds or len(kinds) > 8:
        return
    for place, kind in enumerate(kinds):
        ways = ["imm", "par", "uni", "neg", "abs"]
        if kind in ADDRESSES:
            ways = ["uni", "mix"]
        elif kind == "T":
            ways = ["uni", "bound"]
        for way in ways:
            if (way == "neg" and kind not in NEGATE) or (way == "abs" and kind not in ABSOLUTE):
                continue
            if (kind in "pq" and way in ("imm", "par")) or kind == "q":
                continue
            yield (*base[:place], way, *base[place + 1 :])
    yield ("uni",) * len(kinds)
    if len(kinds) > 1:
        yield tuple("neg" if k in NEGATE else "reg" for k in kinds)


def spell(form: Form, ways: Sequence[str]) -> str:
    """Write one variant as a PTX block on a single line: load the sources, the form, store the results."""
    before: list[str] = []
    after: list[str] = []
    declared: list[str] = []
    way = iter(ways)
    count = 0

    def load(name: str, kind: str, register: str, how: str) -> None:
        nonlocal count
        count += 1
        place = 16 * count
        if kind in "SM":
            base = {"reg": "%shr", "uni": "%shu", "mix": "%shm"}[how]
            before.append(f"add.u32 {name}, {base}, {place};")
        elif kind == "L":
            before.append(f"add.u32 {name}, {'%lou' if how == 'uni' else '%lor'}, {place};")
        elif kind == "C":
            before.append(f"add.u32 {name}, {'%cou' if how == 'uni' else '%cor'}, {place};")
        elif kind in "GA":
            base = {"reg": "%inr", "uni": "%inu", "mix": "%inm"}[how]
            before.append(f"add.u64 {name}, {base}, {place * 16};")
        elif kind == "T":
            before.append(f"ld.param.u64 {name}, [tex];" if how == "uni" else f"ld.global.u64 {name}, [%inr+{place}];")
        elif kind == "p":
            declared.append(f".reg .b32 %t{count};")
            where = f"param.b32 %t{count}, [num" if how == "uni" else f"global.b32 %t{count}, [%inr"
            before.append(f"ld.{where}+{place}]; setp.ne.u32 {name}, %t{count}, 0;")
            if how == "neg":
                before.append(f"not.pred {name}, {name};")
        elif how in ("par", "uni"):
            before.append(f"ld.param.{register} {name}, [num+{place}];")
            if how == "uni" and register in ("b32", "b64"):
                before.append(f"add.{'u' + register[1:]} {name}, {name}, {count + 5};")
            elif how == "uni" and register in ("f32", "f64"):
                whole = "b" + register[1:]
                declared.append(f".reg .{whole} %t{count};")
                before.append(f"mov.{whole} %t{count}, {name}; add.u{whole[1:]} %t{count}, %t{count}, 3;")
                before.append(f"mov.{whole} {name}, %t{count};")
        elif register == "b128":
            declared.append(f".reg .b64 %t{count}, %u{count};")
            before.append(f"ld.global.v2.b64 {{%t{count}, %u{count}}}, [%inr+{place}];")
            before.append(f"mov.b128 {name}, {{%t{count}, %u{count}}};")
        else:
            before.append(f"ld.global.{register} {name}, [%inr+{place}];")
            if how == "neg":
                before.append(f"{NEGATE[kind]} {name}, {name};")
            elif how == "abs":
                before.append(f"{ABSOLUTE[kind]} {name}, {name};")

    def replace(match: re.Match[str]) -> str:
        role, kind, times = match[1], match[2], int(match[3] or 1)
        register, how = REGISTER[kind], "reg" if match[1] else next(way)
        if how == "bound":
            return "bound_surface" if form.text.startswith("su") else "bound_texture"
        if how == "imm" and form.text[match.end() : match.end() + 1] != ".":  # not where a selector follows
            return ", ".join([IMMEDIATE[kind]] * times)
        names = []
        for _ in range(times):
            name = f"%v{len(declared)}"
            names.append(name)
            declared.append(f".reg .{register} {name};")
            if role != "=":
                load(name, kind, register, how)
            if role:
                place = 16 * len(declared)
                if kind == "p":
                    bit = f"%t{name[2:]}x"
                    declared.append(f".reg .b32 {bit};")
                    after.append(f"selp.b32 {bit}, 1, 0, {name}; st.global.b32 [%out+{place}], {bit};")
                elif kind == "q":
                    low, high = f"%t{name[2:]}x", f"%t{name[2:]}y"
                    declared.append(f".reg .b64 {low}, {high};")
                    after.append(f"mov.b128 {{{low}, {high}}}, {name};")
                    after.append(f"st.global.v2.b64 [%out+{place}], {{{low}, {high}}};")
                else:
                    after.append(f"st.global.{register} [%out+{place}], {name};")
        return ", ".join(names)

    text = OPERAND.sub(replace, form.text)
    return "{ " + " ".join([*declared, *before, text + ";", *after]) + " }"


HEADER = """.version {version}
.target {arch}
.address_size 64
.global .align 128 .b8 gmem[65536];
.shared .align 128 .b8 smem[16384];
.const .align 128 .b8 cmem[16384];
.global .texref bound_texture;
.global .surfref bound_surface;
"""
PROLOGUE = """.visible .entry form_{number}(
.param .u64 src, .param .u64 dst, .param .align 16 .b8 num[512], .param .u64 tex) {{
.reg .b64 %inr, %inu, %inm, %out, %wide; .reg .b32 %thr, %shr, %shu, %shm, %lor, %lou, %cor, %cou;
.local .align 16 .b8 lmem[1024];
mov.u32 %thr, %tid.x; ld.param.u64 %inu, [src]; ld.param.u64 %out, [dst];
mul.wide.u32 %wide, %thr, 4096; add.u64 %inm, %inu, %wide; cvta.to.global.u64 %out, %out;
add.u64 %out, %out, %wide; mul.lo.u32 %shr, %thr, 48; ld.global.u64 %inr, [%inm];
ld.param.b32 %shu, [num+4]; mov.u32 %shm, smem; add.u32 %shu, %shu, %shm; add.u32 %shm, %shu, %thr;
ld.global.u32 %shr, [%inr]; mov.u32 %lou, lmem; ld.global.u32 %lor, [%inr+4]; add.u32 %lor, %lor, %lou;
ld.param.b32 %cou, [num+8]; ld.global.u32 %cor, [%inr+8];
"""


def kernel(number: int, blocks: Sequence[str]) -> list[str]:
    """Write one kernel that holds the variants of one form."""
    return [*PROLOGUE.format(number=number).splitlines(), *blocks, "ret;", "}"]


@dataclass
class Count:
    """How many variants ptxas took and refused, and the forms of which it took none."""

    accepted: int = 0
    refused: int = 0
    lost: dict[str, str] = field(default_factory=dict)


def forms_for(arch: str, tables: Sequence[Path] = (TABLE,)) -> list[Form]:
    """Return the forms of the table that arch has."""
    table = [f for t in tables for f in read_table(t.read_text())]
    return [f for f in table if order(f.arch) <= order(arch)]


def assemble_forms(
    forms: Sequence[Form], arch: str, options: Sequence[str], count: Count, version: str = "8.8"
) -> bytes | None:
    """Assemble forms into one cubin, leaving out, round after round, the variants that ptxas refuses."""
    todo = {number: [spell(form, ways) for ways in variants(form)] for number, form in enumerate(forms)}
    reasons: dict[int, str] = {}
    for _ in range(40):
        lines = HEADER.format(arch=arch, version=version).splitlines()
        owner: dict[int, tuple[int, str]] = {}
        for number, blocks in todo.items():
            start = len(lines)
            lines += kernel(number, blocks)
            for place in range(start, len(lines)):
                owner[place + 1] = (number, lines[place])
        try:
            if not todo:
                return None
            cubin = assemble_ptx("\n".join(lines) + "\n", arch, options, 100)
        except (PtxasError, subprocess.TimeoutExpired) as error:
            found = False
            for match in re.finditer(r"line (\d+); *(?:error|fatal)\s*:\s*(.*)", str(error)):
                number, line = owner.get(int(match[1]), (-1, ""))
                if number in todo and line in todo[number]:
                    todo[number].remove(line)
                    count.refused += 1
                    reasons[number] = match[2]
                    found = True
                    if not todo[number]:
                        del todo[number]
            if found:
                continue
            broken = find_broken(todo, arch, options, version)  # an error without a usable line
            if not broken:
                raise
            for number, block, reason in broken:
                left = [other for other in todo[number] if other != block]
                count.refused += len(todo[number]) - len(left)
                todo[number], reasons[number] = left, reason
            todo = {number: blocks for number, blocks in todo.items() if blocks}
        else:
            count.accepted += sum(map(len, todo.values()))
            for number in set(range(len(forms))) - set(todo):
                count.lost[forms[number].text] = reasons.get(number, "?")
            return cubin
    return None


def find_broken(
    todo: dict[int, list[str]], arch: str, options: Sequence[str], version: str
) -> list[tuple[int, str, str]]:
    """The variants that ptxas refuses when they stand alone, of the forms that it refuses so: the form, the variant and
    its words."""

    def refused(blocks: Sequence[str]) -> str:
        try:
            text = HEADER.format(arch=arch, version=version) + "\n".join(kernel(0, blocks)) + "\n"
            assemble_ptx(text, arch, options, 30)
        except (PtxasError, subprocess.TimeoutExpired) as error:
            return str(error)[-300:].replace("\n", " ")
        return ""

    bad = [number for number, blocks in todo.items() if refused(blocks)]
    blocks = [(number, block) for number in bad for block in dict.fromkeys(todo[number])]
    return [(number, block, why) for number, block in blocks if (why := refused([block]))]


def main(arguments: Sequence[str]) -> None:
    """Assemble the whole table for the architectures named and report what was refused."""
    options = [a for a in arguments if a.startswith("-")]
    folder, *archs = [a for a in arguments if not a.startswith("-")]
    tables = [Path(o.split("=", 1)[1]) for o in options if o.startswith("--table=")]
    version = next((o.split("=", 1)[1] for o in options if o.startswith("--version=")), "8.8")
    options = [o for o in options if not o.startswith(("--table=", "--version="))]
    stem = tables[0].stem if tables else "forms"
    for arch in archs:
        forms = forms_for(arch, tables or [TABLE])
        count = Count()
        out = Path(folder, arch)
        out.mkdir(parents=True, exist_ok=True)
        for start in range(0, len(forms), 150):
            cubin = assemble_forms(forms[start : start + 150], arch, options, count, version)
            if cubin:
                name = "_".join([stem, *(o.strip("-") for o in options), f"{start // 150:03}.cubin"])
                out.joinpath(name).write_bytes(cubin)
        print(f"{arch}: {len(forms)} forms, {len(count.lost)} refused; {count.accepted} variants taken, "
              f"{count.refused} refused", flush=True)  # fmt: skip
        out.joinpath(stem + "_refused.txt").write_text("".join(f"{k}\t{v}\n" for k, v in count.lost.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
